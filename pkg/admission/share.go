// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Messages in a transaction: those of one node, and the most that the rest of a
// share needs (parent, three timers, idempotency key, refused nodes).
const (
	nodeMessages  = 4
	shareMessages = 6
)

// parentSlack is how long a batch may outlive the limits of its children, which need
// some time to be stopped.
const parentSlack = time.Hour

// commandSlack is how long a command outlives the limits of its job.
const commandSlack = time.Hour

// share is what one admission wants to add to the next transaction.
type share struct {
	b     *batch
	ctx   context.Context
	nodes []int
	// last says that no further nodes of the batch will come.
	last    bool
	askedAt time.Time
	done    chan error

	// uncertain says that an earlier try may have been committed.
	uncertain bool
	// alone says that the share must not be committed together with others.
	alone bool

	// The plan of the current round.
	now       time.Time
	plans     []plan
	parent    job.Record
	parentRev bus.Revision
	// locks are those of the reserved nodes, guard is the revision of their rack's
	// power guard.
	locks []bus.Lock
	guard bus.Revision
}

// plan is what a round means to do with one node.
type plan struct {
	index   int // in the request
	lock    bus.Lock
	refusal *Refusal
	park    bool
	holder  job.ID
}

func (s *share) ref(index int) node.Ref { return s.b.req.Nodes[index].Ref }

func (s *share) messages() int {
	return nodeMessages*len(s.nodes) + shareMessages + len(s.reserved()) + 1
}

// submit queues the share and waits for its outcome.
func (s *share) submit(ctx context.Context) error {
	select {
	case s.b.a.queue <- s:
	case <-s.b.a.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("admission: %w: %w", bus.ErrUnavailable, ctx.Err())
	}
	// The committing goroutine looks at the context too, and it alone knows
	// whether the share was committed.
	return <-s.done
}

func (s *share) settle(err error) { s.done <- err }

// accepted returns how many nodes the plan gives a job.
func (s *share) accepted() uint32 {
	var n uint32
	for i := range s.plans {
		if s.plans[i].refusal == nil {
			n++
		}
	}
	return n
}

// needsParent reports whether the round writes the parent.
func (s *share) needsParent() bool {
	return !s.b.leaf && (s.last && !s.b.extends || s.accepted() > 0)
}

// creates reports whether the round creates the top-level record.
func (s *share) creates() bool { return !s.b.created && !s.empty() }

// empty reports whether the round has nothing to write.
func (s *share) empty() bool { return s.accepted() == 0 && !s.needsParent() }

// records is how many records the round adds.
func (s *share) records() int64 {
	n := int64(s.accepted())
	if s.creates() && !s.b.leaf {
		n++
	}
	return n
}

// childID is the id of the n-th accepted node of the round.
func (s *share) childID(n uint32) job.ID {
	if s.b.leaf {
		return s.b.id
	}
	return s.b.id.Child(s.base() + n)
}

// base is how many children the parent has before the round.
func (s *share) base() uint32 {
	if s.b.extends {
		return s.parent.Total
	}
	return s.b.attached
}

// write adds the round to the transaction.
func (s *share) write(tx *bus.Tx) error {
	s.now = time.Now()
	if s.needsParent() {
		if err := s.writeParent(tx); err != nil {
			return err
		}
	}
	var n uint32
	for i := range s.plans {
		if s.plans[i].refusal != nil {
			continue
		}
		n++
		if err := s.writeNode(tx, &s.plans[i], s.childID(n)); err != nil {
			return err
		}
	}
	if s.creates() && s.b.key != "" {
		tx.PutIdempotency(s.b.key, &rackbusv1.JobIdempotency{
			V: 1, RequestDigest: s.b.req.Idempotency.Digest, JobId: s.b.id.String(),
		}, s.b.lifetime())
	}
	return nil
}

func (s *share) writeParent(tx *bus.Tx) error {
	b := s.b
	if b.created {
		// With jobs that have ended it could end here; that is left to the fold.
		last := (s.last || b.extends) && !s.anyEnded()
		r, err := grow(s.growRollout(s.parent), s.accepted(), last, s.now)
		if err != nil {
			return err
		}
		r = s.countEnded(r)
		if at := b.parentDeadline(s.now); b.extends && at.After(r.Deadline) && !r.Deadline.IsZero() {
			r.Deadline = at.UTC().Round(0) // its timer, which fires earlier, is armed again then
		}
		tx.ReplaceRecord(&r, s.parentRev)
		s.armRollout(tx, &r)
	} else {
		r := job.NewParent(job.Spec{
			ID: b.id, Type: b.req.Type, Name: b.req.Name, RackID: b.req.RackID, CreatedAt: s.now, Visible: true,
			Cleanup: b.req.Cleanup, About: b.req.About, Rollout: s.newRollout(), Deadline: b.parentDeadline(s.now),
		}, s.accepted(), s.last)
		r = s.countEnded(r)
		if r.State.Terminal() {
			if b.req.NothingAdmitted != "" && s.accepted() == 0 {
				r.Failure = job.NewFailure(job.FailureAdmissionFailed, b.req.NothingAdmitted)
			}
			tx.ArmTimer(bus.TimerReap, b.id, s.now.Add(b.a.opts.Retention))
			if len(r.Cleanup) > 0 {
				tx.ArmTimer(bus.TimerCleanup, b.id, s.now)
			}
		}
		tx.CreateRecord(&r)
		s.armRollout(tx, &r)
		if !r.State.Terminal() {
			tx.ArmTimer(bus.TimerDeadline, b.id, r.Deadline)
		}
		// A batch that has failed already has no child whose events would make it
		// known if this process dies before it does.
		if !s.last || r.State.Terminal() {
			tx.ArmTimer(bus.TimerAdmit, b.id, s.now.Add(b.a.opts.AdmitTimeout))
		}
	}
	if s.last && !b.extends {
		if rec := b.refusals(s.plans); len(rec.GetRefused()) > 0 {
			tx.PutAdmission(b.id, rec)
		}
	}
	return nil
}

// grow adds queued children to a parent whose admission goes on. What the public
// stream is told stays the fold's business.
func grow(parent job.Record, attached uint32, last bool, now time.Time) (job.Record, error) {
	r, change := job.Admit(parent, parent.Total+attached, now)
	if !change.Applied() {
		return parent, fmt.Errorf("admission: parent %s takes no children: %s", parent.ID, change.Ignored)
	}
	if r.State.Terminal() {
		// Every child has ended already. Sealing is for the fold, which hears of
		// the end of the admission by its event.
		return parent, nil
	}
	r.PublicN = parent.PublicN
	if !last {
		var mode job.CancelMode
		if r.Cancel != nil {
			mode = r.Cancel.Mode
		}
		r.Admitted, r.Rollout = false, parent.Rollout
		_, r.Description, _ = job.Aggregate(r.Counts, r.Total, false, mode, r.Type.Wording())
	}
	return r, nil
}

func (s *share) writeNode(tx *bus.Tx, p *plan, id job.ID) error {
	b, n := s.b, &s.b.req.Nodes[p.index]
	wait, run := b.queueLimit(s.now, p.park), b.runLimit(s.now)
	spec := job.Spec{
		ID: id, Type: b.req.Type, Name: b.req.Name, RackID: n.Ref.RackID, NodeID: n.Ref.NodeID,
		Family: string(n.Family), CreatedAt: s.now, Deadline: s.now.Add(wait), Visible: b.leaf,
		Cleanup: b.req.Cleanup, About: n.About,
	}
	if p.park {
		spec.WaitsFor = p.holder
	}
	r := s.topRecord(spec)
	if !b.leaf {
		spec.Name = "" // the parent has it
		if b.extends {
			spec.CreatedAt = s.askedAt // see mine
		}
		r = job.NewChild(b.id, id.Index(), spec)
	}
	if n.Ended != nil {
		return s.writeEnded(tx, r, n.Ended)
	}
	if b.req.Rollout != nil {
		r, r.Deadline = job.RolloutQueued(r), time.Time{}
	}
	cmd, err := n.Command(id)
	if err != nil {
		return fmt.Errorf("admission: command for node %s: %w", n.Ref, err)
	}
	cmd.V, cmd.JobId, cmd.ParentJobId = 1, id.String(), ""
	if !b.leaf {
		cmd.ParentJobId = b.id.String()
	}
	cmd.Type, cmd.Family = string(b.req.Type), string(n.Family)
	cmd.CreatedAt, cmd.Traceparent = timestamppb.New(s.now), b.traceparent
	cmd.RunLimitSeconds = int64(run / time.Second)
	if d := b.req.Deadline; !d.IsZero() && b.req.Rollout == nil {
		cmd.Deadline = timestamppb.New(d)
	}

	lock := &rackbusv1.NodeLock{V: 1, JobId: id.String(), Type: string(b.req.Type), Since: timestamppb.New(s.now)}
	if p.park {
		lock = proto.CloneOf(p.lock.NodeLock)
		lock.Queue = append(lock.Queue, id.String())
	}
	tx.HoldNode(n.Ref, lock, p.lock.Revision)
	s.writeReserved(tx, id)
	tx.CreateRecord(&r)
	if b.req.Rollout != nil {
		// It holds its node, and is offered, with a deadline, when its wave begins.
		tx.ParkCommand(cmd, b.rolloutLimit(s.now)+wait+run+commandSlack)
		return nil
	}
	if p.park {
		tx.ParkCommand(cmd, wait+run+commandSlack)
	} else {
		tx.PutCommand(cmd, wait+run+commandSlack)
	}
	tx.ArmTimer(bus.TimerDeadline, id, s.now.Add(wait))
	return nil
}

// apply takes over what was committed, or what was refused when nothing was.
func (s *share) apply() {
	b, creates := s.b, s.creates()
	var n uint32
	for i := range s.plans {
		p := &s.plans[i]
		if p.refusal != nil {
			b.results[p.index].Refusal = p.refusal
			continue
		}
		n++
		id := s.childID(n)
		b.results[p.index].JobID = id
		if p.park {
			b.parked = append(b.parked, p.index)
		}
	}
	b.created, b.total = b.created || creates, s.base()+n
	b.attached += n
}

// mine reports whether a stored child was made by a try of the share. Others may
// extend the same batch, and then only the time at which the share was asked for
// tells their children from its own.
func (s *share) mine(r *job.Record) bool { return !s.b.extends || r.CreatedAt.Equal(s.askedAt) }

// landed finds out whether an earlier try of the share, whose answer was lost,
// was committed after all, and takes over what it stored.
func (s *share) landed(ctx context.Context) (bool, error) {
	b, c := s.b, s.b.a.opts.Conn
	witness := b.id // a leaf, or a parent that this share creates
	if b.created {
		witness = b.id.Child(s.base() + 1)
	}
	first, rev, err := c.Record(ctx, witness)
	if errors.Is(err, bus.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !s.mine(&first) {
		return false, nil
	}
	if b.leaf {
		b.results[0].JobID, b.created, b.attached = b.id, true, 1
		if !first.WaitsFor.IsZero() {
			b.parked = append(b.parked, 0)
		}
		return true, nil
	}
	ids := make([]job.ID, len(s.nodes))
	for i := range s.nodes {
		ids[i] = b.id.Child(s.base() + uint32(i) + 1)
	}
	stored, err := c.Records(ctx, ids, rev)
	if err != nil {
		return false, err
	}
	byRef := make(map[node.Ref]job.Record, len(stored))
	for _, r := range stored {
		if !s.mine(&r) {
			continue
		}
		byRef[node.Ref{RackID: r.RackID, NodeID: r.NodeID}] = r
	}
	for i, index := range s.nodes {
		if r, ok := byRef[s.ref(index)]; ok {
			b.results[index].JobID = r.ID
			if !r.WaitsFor.IsZero() {
				b.parked = append(b.parked, index)
			}
			continue
		}
		b.results[index].Refusal = &Refusal{Code: job.FailureAdmissionFailed, Message: fmt.Sprintf(textNotReached, b.id)}
		if i < len(s.plans) && s.plans[i].refusal != nil {
			b.results[index].Refusal = s.plans[i].refusal
		}
	}
	b.created, b.total = true, s.base()+uint32(len(byRef))
	b.attached += uint32(len(byRef))
	return true, nil
}
