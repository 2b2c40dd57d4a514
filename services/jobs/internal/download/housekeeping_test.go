// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// fakeJobs has the locks of caches and the records of ended jobs.
type fakeJobs struct {
	locks   map[string]*rackbusv1.NodeLock
	records map[job.ID]job.Record
}

func (f fakeJobs) Lock(_ context.Context, ref node.Ref) (bus.Lock, error) {
	return bus.Lock{NodeLock: f.locks[ref.NodeID]}, nil
}

func (f fakeJobs) Record(_ context.Context, id job.ID) (job.Record, bus.Revision, error) {
	r, ok := f.records[id]
	if !ok {
		return r, 0, bus.ErrNotFound
	}
	return r, 1, nil
}

func TestSettle(t *testing.T) {
	ctx := t.Context()
	id := func(last byte) job.ID {
		v, err := job.ParseID("00000000-0000-4000-8000-0000" + string([]byte{'0', last}) + "000000")
		require.NoError(t, err)
		return v
	}
	failed, done, gone := id('1'), id('2'), id('3')
	r := newRig(t, func(o *Options) {
		o.Jobs = fakeJobs{
			locks: map[string]*rackbusv1.NodeLock{
				"running": {JobId: id('4').String()}, "killed": {LastJobId: failed.String()},
				"done": {LastJobId: done.String()}, "forgotten": {LastJobId: gone.String()},
			},
			records: map[job.ID]job.Record{
				failed: {State: job.StateTimedOut, Failure: job.NewFailure(job.FailureQueueDeadline, "no worker took it")},
				done:   {State: job.StateCompleted},
			},
		}
	})
	for _, cache := range []string{"running", "killed", "done", "forgotten", "never"} {
		require.NoError(t, r.store.CreateCache(ctx, cache, r.artifacts("a.bin")))
	}
	r.object(r.artifacts("a.bin")) // whose job was never admitted
	later := time.Now().Add(2 * orphanAge)
	r.w.settle(ctx, time.Now())
	for _, cache := range []string{"running", "killed", "done", "forgotten", "never", "object"} {
		require.Equal(t, []string{"pending"}, r.states(cache), cache)
	}
	r.w.settle(ctx, later)
	for cache, reason := range map[string]string{
		"running": "", "done": "", "killed": "the download has ended early: no worker took it",
		"forgotten": "the download has ended early", "never": "the download was never begun", "object": "the download was never begun",
	} {
		require.Equal(t, reason, r.records(cache)[0].GetFailure(), cache)
	}
	require.Equal(t, "the download was never begun", r.find().GetFailure())

	// An object whose files are all there, but which nobody made available.
	require.NoError(t, r.store.Delete(ctx, "object"))
	r.object(nil)
	r.w.settle(ctx, later)
	require.Equal(t, "the download was never begun", r.find().GetFailure())
	_, err := r.store.SetAvailable(ctx, "object", nil)
	require.NoError(t, err)
	r.w.settle(ctx, later)
	require.Empty(t, r.find().GetFailure())
}

func TestTidy(t *testing.T) {
	r := newRig(t)
	file := filepath.Join(r.dir, "firmware_objects", "one", "prod", ".a.bin.0123456789abcdef.rackbus.part")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.w.Housekeep(ctx)
	require.FileExists(t, file)
	old := time.Now().Add(-2 * leftoverAge)
	require.NoError(t, os.Chtimes(file, old, old))
	r.w.tidy(t.Context())
	require.NoFileExists(t, file)
}

// Agents give a download up of which they hear nothing.
func TestDownloadShowsThatItIsAlive(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Heartbeat = 5 * time.Millisecond })
	r.held["a.bin"] = true
	r.object(r.artifacts("a.bin"))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.w.run(ctx, jobFor("object"))
		done <- err
	}()
	await(t, r.holding)
	enough, beats := errors.New("enough"), 0
	err := r.store.WatchCache(t.Context(), "object", func(string, catalog.ArtifactChange) error {
		if beats++; beats < 4 {
			return nil
		}
		return enough
	}, func() {})
	require.ErrorIs(t, err, enough)
	cancel(agent.ErrTerminated)
	require.ErrorIs(t, await(t, done), agent.ErrTerminated)
}

// The API has listed the files of an apply, and died before it could admit its jobs.
func TestAbandonedCachesAreRemoved(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.object(r.artifacts("a.bin"))
	require.NoError(t, r.store.CreateCache(ctx, "apply-1", r.artifacts("b.bin")))
	_, err := r.w.run(ctx, jobFor("apply-1"))
	require.NoError(t, err)
	dir := filepath.Join(r.dir, "firmware_objects_ephemeral", "apply-1")
	require.DirExists(t, dir)
	r.w.tidy(ctx)
	require.DirExists(t, dir, "its jobs may still come")
	r.w.dropAbandoned(ctx, 0)
	require.NoDirExists(t, dir)
	left, err := r.store.CacheArtifacts(ctx, "apply-1")
	require.NoError(t, err)
	require.Empty(t, left)
	left, err = r.store.CacheArtifacts(ctx, "object")
	require.NoError(t, err)
	require.Len(t, left, 1)
}
