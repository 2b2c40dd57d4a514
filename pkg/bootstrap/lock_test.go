// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bootstrap"
)

// TestOneRunAtATime: while another one is at work nothing is made, and the refusal says whose turn it is.
func TestOneRunAtATime(t *testing.T) {
	dir := t.TempDir()
	run(t, options(dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "install", "jobs", "nkey.seed")))
	before := snapshot(t, dir)
	held, err := os.OpenFile(filepath.Join(dir, "secrets", ".lock"), os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	for _, o := range []bootstrap.Options{options(dir), leaf(dir)} {
		_, err = bootstrap.Run(o)
		require.ErrorIs(t, err, bootstrap.ErrBusy)
		require.ErrorContains(t, err, dir+" (process "+strconv.Itoa(os.Getpid())+")")
		require.Equal(t, before, snapshot(t, dir))
	}
	require.NoError(t, held.Close())
	require.Len(t, run(t, options(dir)).Made, 1)
}

// TestRunsAtOnce: of several in one new directory each makes all or nothing, and there is one authority for everything.
func TestRunsAtOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { _, errs[i] = bootstrap.Run(options(dir)) })
	}
	wg.Wait()
	done := 0
	for _, err := range errs {
		if errors.Is(err, bootstrap.ErrBusy) {
			continue
		}
		require.NoError(t, err)
		done++
	}
	require.Positive(t, done)
	again := run(t, options(dir))
	require.Empty(t, again.Made)
	require.Empty(t, again.Different, "each copy is that of the one secret")
	require.Empty(t, again.Extended)
}
