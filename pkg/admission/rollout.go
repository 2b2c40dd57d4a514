// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// errRollout says that a request which gives no batch of its own asks for waves.
var errRollout = errors.New("admission: only a batch can start in waves")

// Refusals of a whole request because of its rollout.
const (
	textRolloutNoWaiting = "a rollout holds its nodes from the start, so none of them can wait behind another job or replace it: " +
		"leave out on-busy %s, or the rollout"
	textRolloutNoDomain = "a rollout per domain needs an operation with a switch domain, which this one has not: use per=rack"
)

// checkRollout refuses what does not go together with waves.
func checkRollout(req *Request, leaf bool) error {
	if req.Rollout == nil {
		return nil
	}
	if leaf {
		return errRollout
	}
	if req.OnBusy == OnBusyQueue || req.OnBusy == OnBusySupersede {
		return invalid(textRolloutNoWaiting, req.OnBusy)
	}
	if req.Rollout.Spread != job.SpreadDomain {
		return nil
	}
	for i := range req.Nodes {
		if n := &req.Nodes[i]; n.Refusal == nil && n.Ended == nil && n.Domain == "" {
			return invalid(textRolloutNoDomain)
		}
	}
	return nil
}

// placesOf numbers the racks or domains of the request's nodes, in the order in which
// they come.
func placesOf(req *Request) []uint32 {
	if req.Rollout == nil || req.Rollout.Spread == job.SpreadNone {
		return nil
	}
	numbers := make(map[string]uint32)
	places := make([]uint32, len(req.Nodes))
	for i := range req.Nodes {
		name := req.Nodes[i].Ref.RackID
		if req.Rollout.Spread == job.SpreadDomain {
			name = req.Nodes[i].Domain
		}
		number, ok := numbers[name]
		if !ok {
			number = uint32(len(numbers))
			numbers[name] = number
		}
		places[i] = number
	}
	return places
}

// placed are the places of the nodes that the round accepts.
func (s *share) placed() []uint32 {
	if s.b.places == nil {
		return nil
	}
	var places []uint32
	for i := range s.plans {
		if s.plans[i].refusal == nil {
			places = append(places, s.b.places[s.plans[i].index])
		}
	}
	return places
}

func (s *share) newRollout() *job.Rollout {
	if s.b.req.Rollout == nil {
		return nil
	}
	return job.NewRollout(*s.b.req.Rollout, s.placed())
}

// growRollout adds the places of further children to their parent.
func (s *share) growRollout(parent job.Record) job.Record {
	if parent.Rollout != nil && s.b.places != nil {
		parent.Rollout = parent.Rollout.WithPlaces(s.placed())
	}
	return parent
}

// armRollout lets the first wave begin once all children are attached.
func (s *share) armRollout(tx *bus.Tx, r *job.Record) {
	if at, due := r.RolloutDue(); due {
		if at.IsZero() {
			at = s.now
		}
		tx.ArmTimer(bus.TimerRollout, r.ID, at)
	}
}

// rolloutDeadline is until when all waves must have begun; zero without any.
func (b *batch) rolloutDeadline() time.Time {
	if b.req.Rollout == nil {
		return time.Time{}
	}
	at := b.started.Add(b.a.opts.RolloutDeadline)
	if d := b.req.Deadline; !d.IsZero() && d.Before(at) {
		return d
	}
	return at
}

// rolloutLimit is how long waves may still begin.
func (b *batch) rolloutLimit(now time.Time) time.Duration {
	if b.req.Rollout == nil {
		return 0
	}
	return max(b.rolloutDeadline().Sub(now), 0)
}

func invalid(format string, args ...any) *Refusal {
	return &Refusal{Code: job.FailureInvalidArgument, Message: fmt.Sprintf(format, args...)}
}
