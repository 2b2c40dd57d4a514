// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// startCluster runs three servers and returns a connection to them.
func startCluster(t *testing.T, options ...broker.Options) ([]*broker.Broker, *Conn) {
	t.Helper()
	brokers := brokertest.StartCluster(t, options...)
	var urls []string
	for _, b := range brokers {
		urls = append(urls, b.URL())
	}
	await(t, "the cluster", func() bool {
		for _, b := range brokers {
			if b.ClusterReady(3) {
				return true
			}
		}
		return false
	})
	timing := DefaultTiming(3)
	timing.Request = 5 * time.Second
	c := open(t, "", func(o *Options) { o.URLs, o.Replicas, o.Timing = urls, 3, timing })
	require.NoError(t, c.Provision(t.Context()))
	return brokers, c
}

// TestCatalogueInACluster reads from every server what was just written, although
// replicas may lag behind.
func TestCatalogueInACluster(t *testing.T) {
	t.Parallel()
	brokers, c := startCluster(t)
	ctx := t.Context()
	var readers []*Conn
	for _, b := range brokers {
		readers = append(readers, open(t, b.URL(), func(o *Options) { o.Replicas, o.Timing = 3, c.Timing() }))
	}
	for i := range 10 {
		_, err := c.CommitCatalog(ctx, CatalogWrite{Key: objectKey(t, fmt.Sprint("object-", i)), Value: &rackbusv1.FirmwareObjectRecord{V: 1}})
		require.NoError(t, err)
		d := digestOf(t, random(byte(i), 3*blobChunk))
		require.NoError(t, c.PutBlob(ctx, d, random(byte(i), 3*blobChunk)))
		for _, r := range readers {
			n := 0
			require.NoError(t, r.CatalogEntries(ctx, CatalogObjects, func(CatalogEntry) error { n++; return nil }))
			require.Equal(t, i+1, n)
			require.NoError(t, r.ReadBlob(ctx, d, io.Discard))
		}
	}
	blobs, err := readers[0].Blobs(ctx)
	require.NoError(t, err)
	require.Len(t, blobs, 10)
	require.NoError(t, readers[1].DropBlob(ctx, blobs[0]))
	require.ErrorIs(t, readers[2].ReadBlob(ctx, blobs[0].Digest, io.Discard), ErrNotFound)
}

// TestClusterKeepsWhatItAcknowledged commits on a cluster of three, one of which
// goes away in the middle.
func TestClusterKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	brokers, c := startCluster(t)

	var ids []job.ID
	var cursor Revision
	commit := func() {
		rec := leafRecord(newID(t), fmt.Sprintf("n%d", len(ids)))
		for {
			tx := c.Begin()
			tx.HoldNode(at(rec.NodeID), lockFor(rec.ID), Absent)
			tx.CreateRecord(&rec)
			tx.SetCursor(1, uint64(len(ids)+1), cursor)
			done, err := tx.Commit(t.Context())
			if err == nil {
				cursor = done.Last
				break
			}
			require.True(t, errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown), "%v", err)
			sequence, rev, err := c.Cursor(t.Context(), 1)
			if err == nil && sequence == uint64(len(ids)+1) {
				cursor = rev
				break
			}
		}
		ids = append(ids, rec.ID)
		// What was written is read at once, wherever it is asked.
		_, _, err := c.Record(t.Context(), rec.ID)
		require.True(t, err == nil || errors.Is(err, ErrUnavailable), "%v", err)
	}
	for range 20 {
		commit()
	}
	s, err := c.js.Stream(t.Context(), streamState)
	require.NoError(t, err)
	leader := s.CachedInfo().Cluster.Leader
	for _, b := range brokers {
		if b.Server().Name() == leader {
			b.Close()
		}
	}
	for range 5 {
		commit()
	}
	found, err := c.Records(t.Context(), ids, cursor)
	require.NoError(t, err)
	require.Len(t, found, len(ids))
	e := event(ids[0], job.EventStarted, 1, 1)
	require.NoError(t, c.PublishEvent(t.Context(), e))
	r, err := c.ReadEvents(t.Context(), ids[0].Partition(Partitions), 0)
	require.NoError(t, err)
	defer r.Close()
	got, err := r.Take(<-r.Wait())
	require.NoError(t, err)
	require.Equal(t, e.ID, got.ID)
}

// TestB14StateNeverGoesBackward restarts a follower while the state of a job changes.
// Whoever asks that server, before, during and after, sees the job go forward only.
func TestB14StateNeverGoesBackward(t *testing.T) {
	t.Parallel()
	options := brokertest.ClusterOptions(t)
	brokers, c := startCluster(t, options...)
	rec := leafRecord(newID(t), "n1")
	tx := c.Begin()
	tx.CreateRecord(&rec)
	done, err := tx.Commit(t.Context())
	require.NoError(t, err)
	s, err := c.js.Stream(t.Context(), streamState)
	require.NoError(t, err)
	follower := slices.IndexFunc(brokers, func(b *broker.Broker) bool {
		return b.Server().Name() != s.CachedInfo().Cluster.Leader
	})

	seen := done.Last
	through := func(b *broker.Broker) func() {
		reader := open(t, b.URL(), func(o *Options) { o.Replicas, o.Timing = 3, c.Timing() })
		return func() {
			_, rev, err := reader.Record(t.Context(), rec.ID)
			if errors.Is(err, ErrUnavailable) {
				return
			}
			require.NoError(t, err)
			require.GreaterOrEqual(t, rev, seen, "the state went backward")
			seen = rev
		}
	}
	change := func(times int, read ...func()) {
		for range times {
			rec.Percent = (rec.Percent + 1) % 100
			for {
				tx := c.Begin()
				tx.ReplaceRecord(&rec, done.Last)
				next, err := tx.Commit(t.Context())
				if err == nil {
					done = next
					break
				}
				// The writer, too, may have talked to the server that went.
				require.True(t, errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrConflict), "%v", err)
				if _, rev, err := c.Record(t.Context(), rec.ID); err == nil {
					done.Last = rev
				}
			}
			for _, r := range read {
				r()
			}
		}
	}
	before := through(brokers[follower])
	change(50, before)
	brokers[follower].Close()
	change(200, before)
	restarted := brokertest.StartCluster(t, options[follower])[0]
	after := through(restarted) // while the server catches up
	change(50, before, after)
	await(t, "the last change", func() bool {
		after()
		return seen == done.Last
	})
}
