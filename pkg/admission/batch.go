// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// errKeyTaken says that the idempotency key exists since this admission began.
var errKeyTaken = errors.New("admission: idempotency key taken meanwhile")

// Texts of nodes that an admission did not get to.
const (
	textNotReached = "the admission was cut off before it came to this node; see job %s"
	textUncertain  = "the admission was cut off and it is not known whether this node was given a job; see job %s"
	textStopped    = "job %s was asked to stop before it came to this node"
	textClosed     = "job %s took no further nodes: its admission was closed"
)

// batch is one admission on its way. Only the goroutine of its caller and, while
// a share is in the queue, the committing one touch it.
type batch struct {
	a       *Admitter
	req     *Request
	id      job.ID
	leaf    bool
	key     string
	started time.Time
	results []NodeResult
	// candidates are the indexes of nodes that were not refused beforehand.
	candidates []int
	// created says that the top-level record is stored; attached counts the
	// children.
	created  bool
	attached uint32
	// extends says that the parent was there before, complete with the children
	// of its own admission; total is how many it has after the last commit.
	extends bool
	total   uint32
	// closed is why no further nodes are taken, as a text with one %s.
	closed string
	// parked are the nodes, by index, whose job waits behind another.
	parked []int
	// traceparent is the span of the call, which the jobs belong to.
	traceparent string
	// places is the number of its rack or domain for each node of the request, for a
	// rollout with a spread.
	places []uint32
}

func newBatch(a *Admitter, req *Request, id job.ID, leaf bool) *batch {
	b := &batch{
		a: a, req: req, id: id, leaf: leaf, key: req.Idempotency.storeKey(), started: time.Now(),
		results: make([]NodeResult, len(req.Nodes)),
	}
	seen := make(map[node.Ref]bool, len(req.Nodes))
	for i := range req.Nodes {
		n := &req.Nodes[i]
		b.results[i].Ref = n.Ref
		switch {
		case seen[n.Ref]:
			b.results[i].Refusal = &Refusal{
				Code: job.FailureDuplicateTarget, Message: job.DuplicateText(n.Ref.RackID, n.Ref.NodeID),
			}
		case n.Refusal != nil:
			b.results[i].Refusal = n.Refusal
		case bus.CheckRef(n.Ref) != nil:
			b.results[i].Refusal = &Refusal{Code: job.FailureInvalidArgument, Message: bus.CheckRef(n.Ref).Error()}
		default:
			b.candidates = append(b.candidates, i)
		}
		seen[n.Ref] = true
	}
	b.places = placesOf(req)
	return b
}

// admitAll hands the nodes to the committing goroutine chunk by chunk.
func (b *batch) admitAll(ctx context.Context) error {
	size := b.a.opts.chunkNodes
	for chunk := 0; ; chunk++ {
		start := min(chunk*size, len(b.candidates))
		end := min(start+size, len(b.candidates))
		s := &share{
			b: b, ctx: ctx, nodes: b.candidates[start:end], last: end == len(b.candidates),
			askedAt: time.Now(), done: make(chan error, 1),
		}
		if err := s.submit(ctx); err != nil {
			return err
		}
		if s.last {
			return nil
		}
		b.a.opts.afterChunk(chunk)
		if err := b.a.opts.Failpoints.Hit(PointBetweenChunks); err != nil {
			return err
		}
	}
}

// refuseRest gives every node without outcome one.
func (b *batch) refuseRest(cause error) {
	text := textNotReached
	if errors.Is(cause, bus.ErrOutcomeUnknown) {
		text = textUncertain
	}
	for _, i := range b.candidates {
		if r := &b.results[i]; r.JobID.IsZero() && r.Refusal == nil {
			r.Refusal = &Refusal{Code: job.FailureAdmissionFailed, Message: fmt.Sprintf(text, b.id)}
		}
	}
}

// refusals returns what is kept of the refused nodes, those in plans included.
func (b *batch) refusals(plans []plan) *rackbusv1.AdmissionRecord {
	planned := make(map[int]*Refusal, len(plans))
	for i := range plans {
		planned[plans[i].index] = plans[i].refusal
	}
	rec := &rackbusv1.AdmissionRecord{V: 1}
	for i := range b.results {
		refusal := b.results[i].Refusal
		if refusal == nil {
			refusal = planned[i]
		}
		if refusal == nil {
			continue
		}
		ref := b.results[i].Ref
		rec.Refused = append(rec.Refused, &rackbusv1.RefusedNode{
			RackId: ref.RackID, NodeId: ref.NodeID, Message: refusal.Message, Index: uint32(i),
		})
	}
	return rec
}

// queueLimit and runLimit are the limits of a job of the batch from now on.
func (b *batch) queueLimit(now time.Time, parked bool) time.Duration {
	limit := b.a.opts.QueueDeadline
	if parked {
		limit = b.a.opts.ParkedDeadline
	}
	if b.req.Deadline.IsZero() {
		return limit
	}
	return max(min(limit, b.req.Deadline.Sub(now)), time.Second)
}

func (b *batch) runLimit(now time.Time) time.Duration {
	limit := max(b.a.opts.runLimit(b.req.Type), b.req.MinRun)
	if b.req.Deadline.IsZero() || b.req.Rollout != nil { // that of a rollout is for its waves
		return limit
	}
	return max(min(limit, b.req.Deadline.Sub(now)), time.Second)
}

// parentDeadline is when the batch must have ended: at the caller's deadline, else
// some time after its last child, each of which has a deadline of its own. That of
// a rollout is for its waves.
func (b *batch) parentDeadline(now time.Time) time.Time {
	if b.req.Rollout != nil {
		return b.rolloutDeadline()
	}
	at := now.Add(max(b.a.opts.QueueDeadline, b.a.opts.ParkedDeadline) + b.runLimit(now) + parentSlack)
	if d := b.req.Deadline; !d.IsZero() && d.Before(at) {
		return d
	}
	return at
}

// lifetime is more than the time until the records of the batch are reaped.
func (b *batch) lifetime() time.Duration {
	o := &b.a.opts
	return b.rolloutLimit(b.started) + max(o.QueueDeadline, o.ParkedDeadline) + max(o.runLimit(b.req.Type), b.req.MinRun) + o.Retention + time.Hour
}
