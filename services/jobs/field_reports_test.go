// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs"
)

// Restarts leave nothing behind at the broker, although each has its own readers of the events.
func TestA11RestartsLeaveNoConsumers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	count := func() int {
		n, err := r.raw.Consumers(t.Context())
		require.NoError(t, err)
		return n
	}
	durable := count()
	require.NotZero(t, durable)
	for range 20 {
		rep := r.start(hasty, func(o *jobs.Options) { o.Balance = 10 * time.Millisecond })
		looks := 0
		r.await("a reader for each partition", func() bool {
			if len(rep.Active()) == bus.Partitions && count() >= durable+bus.Partitions {
				looks++
			}
			return looks == 10
		})
		rep.stop(t)
	}
	// One that is being made while its process ends expires by itself.
	r.await("the readers to be gone", func() bool { return count() < durable+bus.Partitions })
}

// Streams that have gone are created again, and jobs go on as if the installation were new.
func TestC2LostStreamsComeBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(hasty, func(o *jobs.Options) { o.StreamCheck = 100 * time.Millisecond })
	a := r.admission()
	first := a.leaf(ref("r", 1))
	r.finished(first, 1, job.StateCompleted)
	r.awaitState(first, job.StateCompleted)
	for _, stream := range []string{"KV_rb", "RACKBUS_EVENTS"} {
		require.NoError(t, r.raw.DropStream(t.Context(), stream))
	}
	r.await("the streams", func() bool {
		records, _, err := r.conn.Capacity(t.Context())
		return err == nil && records == 0
	})
	second := a.leaf(ref("r", 1))
	r.started(second, 1)
	r.awaitState(second, job.StateRunning)
	r.finished(second, 1, job.StateCompleted)
	r.awaitState(second, job.StateCompleted)
	r.requireFree(ref("r", 1), second)
}
