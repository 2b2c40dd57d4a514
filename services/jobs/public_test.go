// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

func decodePublic(t testing.TB, js jetstream.JetStream) []bus.PublicEvent {
	t.Helper()
	cons, err := js.OrderedConsumer(t.Context(), "RACKBUS_EVENTS", jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	info, err := cons.Info(t.Context())
	require.NoError(t, err)
	out := make([]bus.PublicEvent, 0, info.NumPending)
	if info.NumPending == 0 {
		return out
	}
	it, err := cons.Messages()
	require.NoError(t, err)
	defer it.Stop()
	for range info.NumPending {
		m, err := it.Next()
		require.NoError(t, err)
		var e bus.PublicEvent
		require.NoError(t, json.Unmarshal(m.Data(), &e))
		require.Equal(t, fmt.Sprintf("%s:%d", e.JobID, e.N), m.Headers().Get("ce-id"))
		out = append(out, e)
	}
	return out
}

// requireOrdered checks that every job's changes are there once, in their order
// and without a gap, each beginning where the former has ended, and that
// nothing follows a terminal state. It returns the last state of each job.
func requireOrdered(t testing.TB, events []bus.PublicEvent) map[string]string {
	t.Helper()
	last, n := make(map[string]string), make(map[string]uint64)
	for _, e := range events {
		n[e.JobID]++
		require.Equal(t, n[e.JobID], e.N, "change of job %s out of order", e.JobID)
		require.Equal(t, last[e.JobID], e.From, "change %d of job %s", e.N, e.JobID)
		state, ok := job.ParseState(e.From)
		require.False(t, ok && state.Terminal(), "job %s changed after %s", e.JobID, e.From)
		last[e.JobID] = e.State
	}
	return last
}
