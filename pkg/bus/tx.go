// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Retention of keys that nobody removes explicitly.
const (
	// goneTTL is how long a reaped family answers "gone" instead of "unknown".
	goneTTL = 24 * time.Hour
	// recordBackstop is added to a sealed record's retention: should the reap
	// timer be lost, the broker removes the record then.
	recordBackstop = 168 * time.Hour
	// freeLockTTL lets the locks of decommissioned nodes vanish. An expired
	// lock is a free one.
	freeLockTTL = 720 * time.Hour
	// timerTTL is how long a fired timer waits for a handler. It is as long as
	// events wait for the fold: a jobs service that was away over a weekend must
	// still find every deadline that passed, for nobody else ends those jobs.
	timerTTL = eventsMaxAge
)

// MaxTxMessages is how many changes fit into one transaction.
const MaxTxMessages = maxBatch - 2

// Absent is the expected revision of a key that must not exist.
const Absent Revision = 0

// Tx collects changes of the state stream that are made together or not at
// all. It may be committed again after ErrConflict only by building it anew.
type Tx struct {
	c       *Conn
	msgs    []*nats.Msg
	witness int
	err     error
}

// Begin starts an empty transaction.
func (c *Conn) Begin() *Tx { return &Tx{c: c, witness: -1} }

// Len is the number of changes collected so far.
func (t *Tx) Len() int { return len(t.msgs) }

// Commit makes the changes. It wraps ErrConflict when an expected revision did
// not hold, ErrUnavailable when nothing was changed, ErrOutcomeUnknown when
// the broker could not be asked whether it was; also beside one of the others,
// when an answer was lost and what it was about cannot be recognised any more.
func (t *Tx) Commit(ctx context.Context) (Commit, error) {
	if t.err != nil {
		return Commit{}, t.err
	}
	if t.witness < 0 {
		return Commit{}, errors.New("bus: a transaction needs a change with an expected revision")
	}
	return t.c.commitBatch(ctx, streamState, t.msgs, t.witness)
}

// SetCapacity replaces the record counter.
func (t *Tx) SetCapacity(records int64, expect Revision) {
	t.addProto(subjCapacity, &rackbusv1.JobCapacity{V: 1, Records: records}, expecting(expect))
}

// CreateRecord stores the record of a new job.
func (t *Tx) CreateRecord(r *job.Record) {
	t.addRecord(r, expecting(Absent))
	// A record of a new job exists only if this transaction was committed.
	t.witness = len(t.msgs) - 1
}

// PutRecord replaces the record of a job that goes on.
func (t *Tx) PutRecord(r *job.Record) { t.addRecord(r) }

// ReplaceRecord replaces a record that must still have the expected revision.
// Parents are written this way, because admission and fold both change them.
func (t *Tx) ReplaceRecord(r *job.Record, expect Revision) {
	t.addRecord(r, expecting(expect))
	if t.witness < 0 {
		t.witness = len(t.msgs) - 1
	}
}

// SealRecord replaces the record of a job that has ended, and cancels its
// deadline timer. A top-level job's retention is armed with ArmTimer; the
// record's own expiry is only a backstop behind it. expect nil means that any
// revision is fine; parents name the one they have.
func (t *Tx) SealRecord(r *job.Record, retention time.Duration, expect *Revision) {
	opts := []messageOption{func(m *nats.Msg) {
		m.Header.Set(hdrScheduleNext, "purge")
		m.Header.Set(hdrScheduler, timerSubject(TimerDeadline, r.ID))
		setTTL(m, retention+recordBackstop)
	}}
	if expect != nil {
		opts = append(opts, expecting(*expect))
	}
	t.addRecord(r, opts...)
}

// PutAdmission stores the nodes of a batch that got no job.
func (t *Tx) PutAdmission(id job.ID, a *rackbusv1.AdmissionRecord) {
	t.addProto(admissionSubject(id), a)
}

// HoldNode changes the lock of a node to be held.
func (t *Tx) HoldNode(ref node.Ref, l *rackbusv1.NodeLock, expect Revision) {
	t.addProto(lockSubject(ref), l, expecting(expect))
}

// FreeNode releases the lock of a node.
func (t *Tx) FreeNode(ref node.Ref, last job.ID, expect Revision) {
	t.addProto(lockSubject(ref), &rackbusv1.NodeLock{V: 1, LastJobId: last.String()}, expecting(expect),
		func(m *nats.Msg) { setTTL(m, freeLockTTL) })
}

// PutCommand offers a command to the agents of its family. It expires after ttl.
func (t *Tx) PutCommand(cmd *rackbusv1.JobCommand, ttl time.Duration) {
	ref := refOf(cmd)
	t.addProto(commandSubject(node.Family(cmd.GetFamily()), ref), cmd, commandHeader(cmd, ttl))
}

func commandHeader(cmd *rackbusv1.JobCommand, ttl time.Duration) messageOption {
	return func(m *nats.Msg) {
		setTTL(m, ttl)
		if parent := cmd.GetTraceparent(); parent != "" {
			m.Header.Set(hdrTraceParent, parent) // for people; the agent reads the command
		}
	}
}

// ParkCommand keeps a command behind the job that holds its node.
func (t *Tx) ParkCommand(cmd *rackbusv1.JobCommand, ttl time.Duration) {
	id, err := job.ParseID(cmd.GetJobId())
	if err != nil {
		t.fail(err)
		return
	}
	t.addProto(parkSubject(refOf(cmd), id), cmd, commandHeader(cmd, ttl))
}

// ArmTimer fires kind for the job at a moment, replacing an earlier one. The
// broker fires up to 300 ms late.
func (t *Tx) ArmTimer(kind TimerKind, id job.ID, at time.Time) {
	t.add(timerMessage(kind, id, at))
}

// SetCursor moves a partition's fold cursor.
func (t *Tx) SetCursor(partition int, sequence uint64, expect Revision) {
	t.addProto(cursorSubject(partition), &rackbusv1.FoldCursor{V: 1, Sequence: sequence}, expecting(expect))
	t.witness = len(t.msgs) - 1
}

// PutOutbox stores the state changes of a fold commit until they are published.
func (t *Tx) PutOutbox(partition int, sequence uint64, transitions []*rackbusv1.JobTransition) {
	t.addProto(outboxSubject(partition, sequence), &rackbusv1.JobOutbox{V: 1, Transitions: transitions})
}

// MarkGone says that a family of jobs has left; it can be said once.
func (t *Tx) MarkGone(id job.ID) {
	t.add(newMessage(goneSubject(id), []byte(id.Prefix())), expecting(Absent), func(m *nats.Msg) { setTTL(m, goneTTL) })
	t.witness = len(t.msgs) - 1
}

// PutIdempotency remembers the job that a caller's key has created.
func (t *Tx) PutIdempotency(key string, v *rackbusv1.JobIdempotency, ttl time.Duration) {
	t.addProto(subjIdemPrefix+key, v, expecting(Absent), func(m *nats.Msg) { setTTL(m, ttl) })
}

type messageOption func(*nats.Msg)

func expecting(rev Revision) messageOption {
	return func(m *nats.Msg) { m.Header.Set(hdrExpectedLast, strconv.FormatUint(uint64(rev), 10)) }
}

func (t *Tx) addRecord(r *job.Record, opts ...messageOption) {
	data, err := job.MarshalRecord(*r)
	if err != nil {
		t.fail(fmt.Errorf("encode record of job %s: %w", r.ID, err))
		return
	}
	t.add(newMessage(recordSubject(r.ID), data), opts...)
}

func (t *Tx) addProto(subject string, v proto.Message, opts ...messageOption) {
	data, err := proto.Marshal(v)
	if err != nil {
		t.fail(fmt.Errorf("encode %s: %w", subject, err))
		return
	}
	t.add(newMessage(subject, data), opts...)
}

func (t *Tx) add(m *nats.Msg, opts ...messageOption) {
	for _, o := range opts {
		o(m)
	}
	t.msgs = append(t.msgs, m)
}

func (t *Tx) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

func refOf(cmd *rackbusv1.JobCommand) node.Ref {
	return node.Ref{RackID: cmd.GetTarget().GetRackId(), NodeID: cmd.GetTarget().GetNodeId()}
}
