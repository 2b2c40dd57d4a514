// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// Ended is the outcome of a job that is known when it is admitted: nobody works on
// it, and it holds no node.
type Ended struct {
	State       job.State
	Description string
	Failure     *job.Failure
	ResultJSON  string
}

// ended gives a record the outcome. Its first event makes it known to the public
// stream.
func ended(r job.Record, e *Ended, now time.Time) (job.Record, error) {
	r.Deadline = time.Time{}
	r, _, err := job.Fold(r, job.Event{
		Kind: job.EventFinished, ID: r.ID, State: e.State, Description: e.Description, Failure: e.Failure,
		ResultJSON: e.ResultJSON, At: now.UTC().Round(0),
	})
	if err != nil {
		return r, fmt.Errorf("admission: outcome of job %s: %w", r.ID, err)
	}
	r.PublicN = 0
	return r, nil
}

// countEnded takes the accepted nodes whose jobs have ended into their parent.
func (s *share) countEnded(parent job.Record) job.Record {
	public := parent.PublicN
	var n uint32
	for i := range s.plans {
		if s.plans[i].refusal != nil {
			continue
		}
		n++
		if e := s.b.req.Nodes[s.plans[i].index].Ended; e != nil {
			child := job.Record{ID: s.childID(n), State: e.State, ResultJSON: e.ResultJSON}
			parent, _ = job.ApplyChild(parent, child, s.now)
		}
	}
	parent.PublicN = public // telling is the fold's business
	return parent
}

// anyEnded reports whether the round adds a job that has ended.
func (s *share) anyEnded() bool {
	for i := range s.plans {
		if s.plans[i].refusal == nil && s.b.req.Nodes[s.plans[i].index].Ended != nil {
			return true
		}
	}
	return false
}

// writeEnded adds the record of a job that has ended to the transaction.
func (s *share) writeEnded(tx *bus.Tx, r job.Record, e *Ended) error {
	r, err := ended(r, e, s.now)
	if err != nil {
		return err
	}
	tx.CreateRecord(&r)
	if s.b.leaf {
		tx.ArmTimer(bus.TimerReap, r.ID, s.now.Add(s.b.a.opts.Retention))
		if len(r.Cleanup) > 0 {
			tx.ArmTimer(bus.TimerCleanup, r.ID, s.now)
		}
	}
	return nil
}
