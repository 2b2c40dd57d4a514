// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
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
