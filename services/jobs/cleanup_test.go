// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs"
)

// store is a firmware directory with the cache of one request, and a directory
// beside it that is nobody's to remove.
type store struct {
	t        testing.TB
	dir      string
	cache    string
	outside  string
	registry *prometheus.Registry
}

func newStore(t testing.TB) *store {
	t.Helper()
	base := t.TempDir()
	s := &store{
		t: t, dir: filepath.Join(base, "firmware"), outside: filepath.Join(base, "outside"),
		registry: prometheus.NewRegistry(),
	}
	s.cache = filepath.Join(s.dir, "cache", "one")
	require.NoError(t, os.MkdirAll(filepath.Join(s.cache, "deeper"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "cache", "other"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(s.outside, "kept"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(s.cache, "deeper", "image.bin"), []byte("image"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.outside, "kept", "file"), []byte("kept"), 0o600))
	return s
}

func (s *store) options(o *jobs.Options) { o.FirmwareDir, o.Registerer = s.dir, s.registry }

func (s *store) requireOutsideUntouched() {
	s.t.Helper()
	require.FileExists(s.t, filepath.Join(s.outside, "kept", "file"))
}

// cleanups is how many directories had a result so far.
func (s *store) cleanups(result string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() != "rackbus_cleanups_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	s.t.Fatalf("there is no rackbus_cleanups_total{result=%q}", result)
	return 0
}

// planned admits a batch of n nodes with a cleanup plan.
func (r *rig) planned(n int, plan ...string) job.ID {
	r.t.Helper()
	a := r.admission()
	a.plan = plan
	return a.batch("r", n, false)
}

// lines is a log that can be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestCleanupWaitsForTheWholeBatch(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newStore(t)
	r.start(hasty, s.options)
	id := r.planned(2, "cache/one", "cache/never-made")
	r.started(id.Child(1), 1)
	r.started(id.Child(2), 1)
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.awaitState(id.Child(1), job.StateCompleted)
	_, err := r.raw.ArmedTimer(t.Context(), bus.TimerCleanup, id)
	require.Error(t, err, "a child still uses it")
	require.DirExists(t, s.cache)
	require.Equal(t, job.StateRunning, r.record(id).State)

	r.finished(id.Child(2), 1, job.StateFailed)
	r.awaitState(id, job.StatePartiallyFailed)
	r.await("the directory to be removed", func() bool { return s.cleanups("removed") == 1 && s.cleanups("not_found") == 1 })
	require.NoDirExists(t, s.cache)
	require.DirExists(t, filepath.Join(s.dir, "cache", "other"), "another request's")
	require.Zero(t, s.cleanups("failed"))
}

func TestCleanupStaysInsideTheFirmwareDirectory(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newStore(t)
	require.NoError(t, os.Symlink(s.outside, filepath.Join(s.cache, "link")))
	require.NoError(t, os.Symlink(s.outside, filepath.Join(s.dir, "cache", "alias")))
	r.start(hasty, s.options)
	id := r.planned(1, "cache/one", "cache/alias")
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
	r.await("both to be removed", func() bool { return s.cleanups("removed") == 2 })
	require.NoDirExists(t, s.cache)
	require.False(t, exists(filepath.Join(s.dir, "cache", "alias")), "the link itself goes")
	s.requireOutsideUntouched()
}

// TestCleanupSurvivesARestart stops the service after the job was sealed and
// before anything was removed.
func TestCleanupSurvivesARestart(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newStore(t)
	points := &failpoint.Points{}
	points.Arm("timer.before", 0, func() error { return failpoint.ErrInjected })
	first := r.start(hasty, func(o *jobs.Options) { o.FirmwareDir, o.Failpoints = s.dir, points })
	id := r.planned(1, "cache/one")
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
	first.stop(t)
	require.DirExists(t, s.cache)

	r.start(hasty, s.options)
	r.await("the next replica to remove it", func() bool { return s.cleanups("removed") == 1 })
	require.NoDirExists(t, s.cache)
}

// TestCleanupIsRepeated lets the way to the directory lead out of the firmware
// directory, which no privilege helps against, until it has failed twice.
func TestCleanupIsRepeated(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newStore(t)
	way := filepath.Join(s.dir, "way")
	require.NoError(t, os.Symlink(s.outside, way))
	r.start(hasty, s.options)
	id := r.planned(1, "way/kept")
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
	r.await("two failures", func() bool { return s.cleanups("failed") >= 2 })
	s.requireOutsideUntouched()

	// Replaced in one step: a directory that is missing counts as removed.
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "real", "kept"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(s.dir, "next")))
	require.NoError(t, os.Rename(filepath.Join(s.dir, "next"), way))
	r.await("the removal", func() bool { return s.cleanups("removed") == 1 })
	require.NoDirExists(t, filepath.Join(s.dir, "real", "kept"))
	s.requireOutsideUntouched()
}

// TestCleanupIsGivenUpWithTheRecord keeps a directory from being removed for as
// long as the job is known.
func TestCleanupIsGivenUpWithTheRecord(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newStore(t)
	require.NoError(t, os.Symlink(s.outside, filepath.Join(s.dir, "way")))
	var log lines
	r.start(hasty, s.options, func(o *jobs.Options) {
		o.Retention, o.Logger = 2*time.Second, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	id := r.planned(1, "way/kept")
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.await("the family to leave", func() bool {
		_, _, err := r.conn.Record(t.Context(), id)
		return err != nil
	})
	require.GreaterOrEqual(t, s.cleanups("failed"), 2.0)
	require.Contains(t, log.String(), "given up")
	require.Contains(t, log.String(), "job_id="+id.String())
	s.requireOutsideUntouched()
}

func TestCleanupWithoutFirmwareDirectory(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newStore(t)
	r.start(hasty, s.options, func(o *jobs.Options) { o.FirmwareDir = "" })
	id := r.planned(1, "cache/one")
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.awaitState(id, job.StateCompleted)
	r.await("the plan to be skipped", func() bool { return s.cleanups("skipped") == 1 })
	require.DirExists(t, s.cache)
}
