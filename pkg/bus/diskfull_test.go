// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/porttest"
)

// A broker whose disk is full makes the process not ready and its writes
// UNAVAILABLE; after the repair both go on by themselves.
func TestFullDisk(t *testing.T) {
	store := t.TempDir()
	if err := syscall.Mount("tmpfs", store, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("needs the right to mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(store, syscall.MNT_DETACH)) })
	options := broker.Options{Name: "full", StoreDir: filepath.Join(store, "bus"), Host: "127.0.0.1", Port: porttest.Free(t, 1)[0]}
	b, err := broker.Start(options)
	require.NoError(t, err)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			b.Close()
		}
	})
	c := open(t, b.URL())
	require.NoError(t, c.Provision(t.Context()))
	require.NoError(t, c.Ready())

	filler := filepath.Join(store, "filler")
	fillDisk(t, filler)
	payload := make([]byte, 64<<10)
	_, err = rand.Read(payload)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = c.put(t.Context(), "$KV.rb.test.full", payload, nil, 0)
		return err != nil
	}, patience, time.Millisecond, "a write that the disk cannot take must fail")
	require.ErrorIs(t, err, ErrOutcomeUnknown, "the broker does not answer")
	require.ErrorIs(t, c.Ready(), ErrUnavailable)
	require.ErrorContains(t, c.Ready(), "cannot store")

	// nats-server keeps a stream with a write error frozen until it is restarted.
	require.NoError(t, os.Remove(filler))
	b.Close()
	stopped = true
	again, err := broker.Start(options)
	require.NoError(t, err)
	t.Cleanup(again.Close)
	require.Eventually(t, func() bool { return c.Ready() == nil }, patience, 50*time.Millisecond)
	_, err = c.put(t.Context(), "$KV.rb.test.full", payload, nil, 0)
	require.NoError(t, err)
}

func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		if _, err := f.Write(block); err != nil {
			require.ErrorIs(t, err, syscall.ENOSPC)
			return
		}
	}
}
