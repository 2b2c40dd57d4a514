// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

// inPartition draws ids of one partition.
func inPartition(t *testing.T, p int) job.ID {
	t.Helper()
	for {
		if id := newID(t); id.Partition(Partitions) == p {
			return id
		}
	}
}

// TestReaderSeesEveryEventOnceAndInOrder reads while events are written, one of
// them unreadable, others twice, and while the reader's connection breaks.
func TestReaderSeesEveryEventOnceAndInOrder(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	proxy := startCutter(t, b.URL())
	reading := open(t, proxy.url())
	id, other := inPartition(t, 2), inPartition(t, 3)
	const before, after = 300, 300
	publish := func(from, to uint64) {
		var wg sync.WaitGroup
		for n := from; n <= to; n++ {
			require.NoError(t, c.PublishEvent(t.Context(), event(id, job.EventProgress, 1, n)))
			if n%50 == 0 {
				wg.Go(func() { _ = c.PublishEvent(t.Context(), event(id, job.EventProgress, 1, n)) })
				wg.Go(func() { _ = c.PublishEvent(t.Context(), event(other, job.EventProgress, 1, n)) })
			}
			wg.Wait()
		}
	}
	publish(1, before)
	js := rawJetStream(t, b.URL())
	_, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: eventSubject(2, "r", "n", id, "progress"), Data: []byte("\xff")})
	require.NoError(t, err)

	await(t, "the connection", func() bool { return reading.nc.IsConnected() })
	r, err := reading.ReadEvents(t.Context(), 2, 0)
	require.NoError(t, err)
	defer r.Close()
	seen, broken, sequence := uint64(0), 0, uint64(0)
	read := func(until uint64) {
		for seen < until {
			e, err := r.Take(<-r.Wait())
			require.Greater(t, e.Sequence, sequence)
			sequence = e.Sequence
			if err != nil {
				broken++
				continue
			}
			seen++
			require.Equal(t, seen, e.N)
			require.Equal(t, id, e.ID)
		}
	}
	read(100)
	proxy.set(cutAll)
	await(t, "the interruption", func() bool { return !reading.nc.IsConnected() })
	publish(before+1, before+after)
	proxy.set(cutNothing)
	read(before + after)
	require.Equal(t, 1, broken)

	// A reader that begins behind an event does not see it again.
	again, err := c.ReadEvents(t.Context(), 2, sequence-1)
	require.NoError(t, err)
	defer again.Close()
	e, err := again.Take(<-again.Wait())
	require.NoError(t, err)
	require.Equal(t, uint64(before+after), e.N)
	require.Zero(t, e.Pending)

	newest, omitted, err := c.NewestJobEvents(t.Context(), other, 0, 4, 1<<20)
	require.NoError(t, err)
	require.Len(t, newest, 4, "of twelve")
	require.Equal(t, 8, omitted)
	for i, e := range newest {
		require.Equal(t, uint64(50*(i+9)), e.N)
		require.NotZero(t, e.Sequence)
	}
	behind, omitted, err := c.NewestJobEvents(t.Context(), other, newest[1].Sequence, 100, 1<<20)
	require.NoError(t, err)
	require.Zero(t, omitted)
	require.Equal(t, newest[2:], behind)
	behind, omitted, err = c.NewestJobEvents(t.Context(), other, newest[0].Sequence, 2, 1<<20)
	require.NoError(t, err)
	require.Equal(t, 1, omitted, "of those behind it")
	require.Equal(t, newest[2:], behind)
	behind, _, err = c.NewestJobEvents(t.Context(), other, newest[3].Sequence, 4, 1<<20)
	require.NoError(t, err)
	require.Empty(t, behind)
	behind, _, err = c.NewestJobEvents(t.Context(), other, math.MaxUint64, 4, 1<<20)
	require.NoError(t, err)
	require.Empty(t, behind)
	newest, omitted, err = c.NewestJobEvents(t.Context(), other, 0, 100, 1)
	require.NoError(t, err)
	require.Empty(t, newest)
	require.Equal(t, 12, omitted)
}

func TestPublishEventEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, b := provisioned(t)
	proxy := startCutter(t, b.URL())
	c := open(t, proxy.url())
	await(t, "the connection", func() bool { return c.nc.IsConnected() })
	proxy.set(cutAll)
	await(t, "the interruption", func() bool { return !c.nc.IsConnected() })
	ctx, cancel := context.WithTimeout(t.Context(), quick().Request/4)
	defer cancel()
	require.Error(t, c.PublishEvent(ctx, event(newID(t), job.EventQueued, 0, 0)))
}

// TestManyEventsAtOnceAreWrittenTogether also checks that a repetition within a
// group does not harm the others.
func TestManyEventsAtOnceAreWrittenTogether(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ids := make([]job.ID, 300)
	var wg sync.WaitGroup
	for i := range ids {
		ids[i] = newID(t)
		for range 2 {
			wg.Go(func() {
				if err := c.PublishEvent(t.Context(), event(ids[i], job.EventProgress, 1, 1)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	s, err := c.js.Stream(t.Context(), streamEvents)
	require.NoError(t, err)
	require.Equal(t, uint64(len(ids)), s.CachedInfo().State.LastSeq)
}
