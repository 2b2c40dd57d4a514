// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs"
)

// BenchmarkFold measures how fast one partition's events become records: 40
// batches of 240 nodes whose children start, report progress eight times and
// complete, all of them in step, so that no two neighbouring events are of the
// same job. The stream is filled before the clock starts. It reports events/s
// until the last batch is sealed, and until everything is also published.
func BenchmarkFold(b *testing.B) {
	const batches, nodes, progress = 40, 240, 8
	for b.Loop() {
		b.StopTimer()
		r := newRig(b)
		filled := make([]filled, batches)
		for i := range filled {
			filled[i] = r.fillBatch(fmt.Sprintf("rack-%d", i), nodes)
		}
		events := r.fillEvents(filled, nodes, progress)
		b.StartTimer()

		start := time.Now()
		rep := r.start(func(o *jobs.Options) { o.CommitInterval = 50 * time.Millisecond })
		r.await("all batches to be completed", func() bool {
			last, _, err := r.conn.Record(b.Context(), filled[batches-1].id)
			require.NoError(b, err)
			return last.State.Terminal()
		})
		b.ReportMetric(float64(events)/time.Since(start).Seconds(), "events/s")
		r.await("all changes to be published", func() bool { return len(r.publicEvents()) == batches*(3*nodes+2) })
		b.ReportMetric(float64(events)/time.Since(start).Seconds(), "published-events/s")
		rep.stop(b)
	}
}

// filled is a batch with the revision of the command of its first child; those
// of the others follow every four messages.
type filled struct {
	id      job.ID
	command bus.Revision
}

// fillBatch admits a batch in partition 0.
func (r *rig) fillBatch(rack string, nodes int) filled {
	r.t.Helper()
	id := newID(r.t)
	for id.Partition(bus.Partitions) != 0 {
		id = newID(r.t)
	}
	deadline := time.Now().Add(time.Hour)
	c := r.commit(func(tx *bus.Tx, records int64, rev bus.Revision) {
		tx.SetCapacity(records+int64(nodes)+1, rev)
		parent := job.NewParent(spec(id, ref(rack, 0), time.Time{}), uint32(nodes), true)
		parent.NodeID, parent.Family = "", ""
		tx.CreateRecord(&parent)
		for i := 1; i <= nodes; i++ {
			rec := job.NewChild(id, uint32(i), spec(job.ID{}, ref(rack, i), deadline))
			tx.HoldNode(ref(rack, i), held(&rec), bus.Absent)
			tx.CreateRecord(&rec)
			tx.PutCommand(command(&rec), time.Hour)
			tx.ArmTimer(bus.TimerDeadline, rec.ID, deadline)
		}
	})
	return filled{id, c.At(4)}
}

// fillEvents stores the events of all children, all of one kind before the next.
func (r *rig) fillEvents(batches []filled, nodes, progress int) int {
	r.t.Helper()
	count := 0
	for n := range progress + 2 {
		var events []job.Event
		for b, f := range batches {
			for i := 1; i <= nodes; i++ {
				at := time.Now().UTC()
				e := job.Event{
					Kind: job.EventProgress, ID: f.id.Child(uint32(i)), RackID: fmt.Sprintf("rack-%d", b), NodeID: fmt.Sprintf("node-%d", i),
					Type: job.TypeFirmwareUpdate, Family: "compute", Epoch: 1, N: uint64(n + 1), Attempt: 1, Agent: "agent-1",
					Description: "Uploading", Percent: uint32(10 * n), At: at, StartedAt: at, Deadline: at.Truncate(time.Hour).Add(9 * time.Hour),
					Stages: []job.Stage{{Name: "upload", Status: job.StageRunning, StartedAt: at}},
				}
				switch n {
				case 0:
					e.Kind = job.EventStarted
				case progress + 1:
					e.Kind, e.State = job.EventFinished, job.StateCompleted
					e.CommandSeq = uint64(f.command) + uint64(4*(i-1))
				}
				events = append(events, e)
			}
		}
		r.publishAll(events)
		count += len(events)
	}
	return count
}

// publishAll stores events of different jobs as fast as the bus takes them.
func (r *rig) publishAll(events []job.Event) {
	r.t.Helper()
	queue := make(chan *job.Event)
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			for e := range queue {
				if err := r.conn.PublishEvent(context.Background(), e); err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	for i := range events {
		queue <- &events[i]
	}
	close(queue)
	wg.Wait()
}
