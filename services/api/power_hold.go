// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// limitOf is the limit of a query by family.
type limitOf func(node.Family) time.Duration

func (s *Server) powerLimit(node.Family) time.Duration { return s.opts.Timing.PowerLimit }

func (s *Server) inventoryLimit(node.Family) time.Duration { return s.opts.Timing.InventoryLimit }

func (s *Server) deviceInfoLimit(f node.Family) time.Duration {
	if f == node.FamilySwitch {
		return s.opts.Timing.DeviceInfoLimitSwitch
	}
	return s.opts.Timing.DeviceInfoLimitCompute
}

// lockTries bounds the races of one operation for a node's lock.
const lockTries = 5

// hold is one synchronous change of a node and what it keeps others from doing.
type hold struct {
	s        *Server
	op       string
	deadline time.Time
	forced   bool // goes beside the job that holds the node
}

// newHold fixes the deadline of a change: the caller's, or one from the limit.
func (s *Server) newHold(ctx context.Context, op string, limit time.Duration) *hold {
	h := &hold{s: s, op: "power operation " + op, deadline: time.Now().Add(limit), forced: forced(ctx)}
	if d, ok := ctx.Deadline(); ok && d.Before(h.deadline) {
		h.deadline = d
	}
	return h
}

// end is until when others stay off what nobody has released: past the deadline
// by which the agent stops sending, because the clocks of hosts differ.
func (h *hold) end() time.Time { return h.deadline.Add(h.s.opts.Timing.LockMargin) }

// ttl is when the broker drops it.
func (h *hold) ttl() time.Duration { return time.Until(h.end()) }

// takeRack takes the rack's power guard. ErrConflict says that another operation
// has it.
func (h *hold) takeRack(ctx context.Context, rackID string) (bus.Revision, error) {
	var rev bus.Revision
	holder := rand.Text() // recognises an earlier try whose answer was lost
	err := h.s.ride(ctx, func(ctx context.Context) (err error) {
		rev, err = h.s.opts.Conn.TakeRackPower(ctx, rackID, &rackbusv1.RackPower{
			V: 1, Holder: holder, Operation: h.op, Deadline: timestamppb.New(h.end()),
		}, h.ttl())
		return err
	})
	return rev, err
}

func (h *hold) releaseRack(ctx context.Context, guard bus.Revision) {
	ctx = context.WithoutCancel(ctx)
	err := h.s.ride(ctx, func(ctx context.Context) error { return h.s.opts.Conn.ReleaseRackPower(ctx, guard) })
	if err != nil {
		h.s.log.WarnContext(ctx, "rack power guard not released; it expires", "op", h.op, "err", err)
	}
}

// textNotBegun is why nodes of a batch are left alone whose caller has gone.
const textNotBegun = "the call had ended before its turn; nothing was sent to the node"

// change locks the node, asks the agent, and unlocks the node unless the agent
// may still be at work: then the lock stays until past the deadline, after which
// no agent sends. A caller that goes away does not cut the change, whose outcome
// would be unknown then; but nothing is begun for a caller that has gone.
func (h *hold) change(ctx context.Context, target *rackbusv1.NodeTarget, op rackmanager.PowerOperation) outcome {
	return h.send(ctx, query{op: opPowerSet, target: target, power: int32(op)})
}

// send does what change does with any query.
func (h *hold) send(ctx context.Context, q query) outcome {
	ref := node.Ref{RackID: q.target.GetRackId(), NodeID: q.target.GetNodeId()}
	if ctx.Err() != nil {
		return outcome{err: errors.New(textNotBegun), answered: true}
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), h.deadline)
	defer cancel()
	held, err := h.lock(ctx, ref)
	if err != nil {
		return outcome{err: err, answered: true}
	}
	q.limit = time.Until(h.deadline)
	out := h.s.ask(ctx, q)
	if out.answered {
		h.unlock(ctx, ref, held)
	}
	return out
}

// lock takes the node, unless the change is forced and a job holds it: besideJob is
// what it returns then. Errors are for the caller.
func (h *hold) lock(ctx context.Context, ref node.Ref) (bus.Revision, error) {
	var rev bus.Revision
	began := time.Now()
	err := h.s.ride(ctx, func(ctx context.Context) (err error) {
		for range lockTries {
			lock, err := h.s.opts.Conn.Lock(ctx, ref)
			if err != nil {
				return err
			}
			if busy := admission.BusyRefusal(ref, lock, time.Now()); busy != nil {
				if !h.forced || busy.Holder == (job.ID{}) {
					return busyError(busy.Message)
				}
				rev = besideJob
				err = h.goBeside(ctx, ref, busy.Holder, began)
				if !errors.Is(err, bus.ErrNotFound) { // else the job has just gone
					return err
				}
				continue
			}
			rev, err = h.s.opts.Conn.HoldSync(ctx, ref, &rackbusv1.NodeLock{
				V: 1, Operation: h.op, Since: timestamppb.Now(), Deadline: timestamppb.New(h.end()),
			}, lock.Revision, h.ttl())
			if !errors.Is(err, bus.ErrConflict) {
				return err
			}
		}
		return bus.ErrConflict
	})
	var busy busyError
	switch {
	case err == nil, errors.As(err, &busy):
		return rev, err
	case errors.Is(err, bus.ErrConflict):
		return 0, errors.New("others keep taking the node; try again")
	}
	h.s.log.WarnContext(ctx, "node not locked", "rack", ref.RackID, "node", ref.NodeID, "op", h.op, "err", err)
	return 0, errors.New(textUnavailable)
}

func (h *hold) unlock(ctx context.Context, ref node.Ref, held bus.Revision) {
	if held == besideJob {
		return
	}
	ctx = context.WithoutCancel(ctx)
	err := h.s.ride(ctx, func(ctx context.Context) error { return h.s.opts.Conn.ReleaseSync(ctx, ref, held) })
	if err != nil {
		h.s.log.WarnContext(ctx, "node not unlocked; the lock expires",
			"rack", ref.RackID, "node", ref.NodeID, "op", h.op, "err", err)
	}
}

// busyError says what holds a node.
type busyError string

func (e busyError) Error() string { return string(e) }

func busyText(ref node.Ref, lock bus.Lock) string {
	if r := admission.BusyRefusal(ref, lock, time.Now()); r != nil {
		return r.Message
	}
	return ""
}
