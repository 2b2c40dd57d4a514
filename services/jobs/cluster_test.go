// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/job"
)

// TestJobsSurviveTheLossOfOneOfThreeBrokers ends a broker while jobs run.
func TestJobsSurviveTheLossOfOneOfThreeBrokers(t *testing.T) {
	t.Parallel()
	brokers := brokertest.StartCluster(t)
	r := newRigOn(t, brokers[0].URL(), brokers[1].URL(), brokers[2].URL())
	r.patience = 2 * time.Minute // electing leaders takes seconds, consumers come after them
	r.start(hasty)
	const n = 60
	id := r.admission().batch("r", n, false)
	starts, ends := make([]job.Event, n), make([]job.Event, n)
	for i := range n {
		rec := r.record(id.Child(uint32(i + 1)))
		starts[i], ends[i] = said(&rec, job.EventStarted, 1, 1), said(&rec, job.EventFinished, 1, 2)
		ends[i].State, ends[i].StartedAt = job.StateCompleted, starts[i].At
	}
	r.publishAll(starts)
	brokers[0].Close()
	r.publishAll(ends)
	var parent job.Record
	r.await("the batch to be completed", func() bool {
		rec, _, err := r.conn.Record(t.Context(), id)
		if err == nil {
			parent = rec
		}
		return parent.State.Terminal()
	})
	require.Equal(t, job.StateCompleted, parent.State)
	r.await("all public changes", func() bool {
		events, err := r.raw.PublicEvents(t.Context())
		return err == nil && len(events) == 3*n+2
	})
	requireOrdered(t, r.publicEvents())
}
