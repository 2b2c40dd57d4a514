// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// random gives n bytes that are the same for the same seed.
func random(seed byte, n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), n)
}

func digestOf(t *testing.T, r io.Reader) Digest {
	t.Helper()
	h := sha256.New()
	_, err := io.Copy(h, r)
	require.NoError(t, err)
	return Digest(h.Sum(nil))
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	ctx := t.Context()
	for _, size := range []int64{0, 1, blobChunk, blobChunk + 1, blobChunk*blobWindow*2 + 7} {
		d := digestOf(t, random(byte(size), size))
		_, err := c.Blob(ctx, d)
		require.ErrorIs(t, err, ErrNotFound)
		require.ErrorIs(t, c.ReadBlob(ctx, d, io.Discard), ErrNotFound)
		require.NoError(t, c.PutBlob(ctx, d, random(byte(size), size)))
		require.NoError(t, c.PutBlob(ctx, d, iotest{errors.New("is not read again")}))
		var got bytes.Buffer
		require.NoError(t, open(t, b.URL()).ReadBlob(ctx, d, &got))
		require.Equal(t, d, digestOf(t, &got))
		blob, err := c.Blob(ctx, d)
		require.NoError(t, err)
		require.Equal(t, size, blob.Size)
	}
	// What the NATS client knows of it.
	store, err := rawJetStream(t, b.URL()).ObjectStore(ctx, blobBucket)
	require.NoError(t, err)
	infos, err := store.List(ctx)
	require.NoError(t, err)
	require.Len(t, infos, 5)
	for _, info := range infos {
		data, err := store.GetBytes(ctx, info.Name)
		require.NoError(t, err)
		require.Len(t, data, int(info.Size))
	}
}

// iotest is a reader that fails.
type iotest struct{ err error }

func (r iotest) Read([]byte) (int, error) { return 0, r.err }

// TestRefusedBlobLeavesNothing puts bytes that are not what they should be, and
// some that end in an error.
func TestRefusedBlobLeavesNothing(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ctx := t.Context()
	d := digestOf(t, random(1, 3*blobChunk))
	require.ErrorIs(t, c.PutBlob(ctx, d, random(2, 3*blobChunk)), ErrDigest)
	cut := errors.New("cut")
	require.ErrorIs(t, c.PutBlob(ctx, d, io.MultiReader(random(1, 2*blobChunk), iotest{cut})), cut)
	ended, cancel := context.WithCancel(ctx)
	require.ErrorIs(t, c.PutBlob(ended, d, io.MultiReader(random(1, 2*blobChunk), readerFunc(func([]byte) (int, error) {
		cancel()
		return 0, ended.Err()
	}))), context.Canceled)
	_, err := c.Blob(ctx, d)
	require.ErrorIs(t, err, ErrNotFound)
	left, err := c.listSubjects(ctx, streamBlobs, ">")
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, c.PutBlob(ctx, d, random(1, 3*blobChunk)))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestKeptBlobIsNotDropped decides to remove a blob before somebody else keeps it.
func TestKeptBlobIsNotDropped(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ctx := t.Context()
	d := digestOf(t, random(1, 10))
	require.NoError(t, c.PutBlob(ctx, d, random(1, 10)))
	before, err := c.Blob(ctx, d)
	require.NoError(t, err)
	kept, err := c.KeepBlob(ctx, d)
	require.NoError(t, err)
	require.True(t, kept)
	require.ErrorIs(t, c.DropBlob(ctx, before), ErrConflict)
	require.NoError(t, c.ReadBlob(ctx, d, io.Discard))
	now, err := c.Blob(ctx, d)
	require.NoError(t, err)
	require.NoError(t, c.DropBlob(ctx, now))
	require.ErrorIs(t, c.ReadBlob(ctx, d, io.Discard), ErrNotFound)
	kept, err = c.KeepBlob(ctx, d)
	require.NoError(t, err)
	require.False(t, kept)
	left, err := c.listSubjects(ctx, streamBlobs, ">")
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestConcurrentPutsOfOneBlob expects one copy of it.
func TestConcurrentPutsOfOneBlob(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ctx := t.Context()
	d := digestOf(t, random(1, 2*blobChunk))
	var wg sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		wg.Go(func() { errs[i] = c.PutBlob(ctx, d, random(1, 2*blobChunk)) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	left, err := c.listSubjects(ctx, streamBlobs, subjBlobChunk+">")
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.NoError(t, c.ReadBlob(ctx, d, io.Discard))
}

func TestSweepBlobs(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	ctx := t.Context()
	d := digestOf(t, random(1, 10))
	require.NoError(t, c.PutBlob(ctx, d, random(1, 10)))
	_, err := rawJetStream(t, b.URL()).Publish(ctx, subjBlobChunk+"left", []byte("behind"))
	require.NoError(t, err)
	swept, err := c.SweepBlobs(ctx, time.Hour)
	require.NoError(t, err)
	require.Zero(t, swept)
	swept, err = c.SweepBlobs(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, 1, swept)
	require.NoError(t, c.ReadBlob(ctx, d, io.Discard))
}

// TestBlobsNeedLittleMemory moves a blob that is larger than what is allowed to
// be in use, and looks now and then at what is. What the broker keeps is not in it.
func TestBlobsNeedLittleMemory(t *testing.T) {
	c := open(t, brokerProcess(t))
	ctx := t.Context()
	require.NoError(t, c.Provision(ctx))
	const size, allowed, every = 96 << 20, 24 << 20, 16 << 20
	d := digestOf(t, random(1, size))
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	base := inUse()
	var moved, looked int64
	watch := func(n int) {
		if moved += int64(n); moved/every > looked {
			looked = moved / every
			require.Less(t, inUse()-base, int64(allowed))
		}
	}
	src := random(1, size)
	require.NoError(t, c.PutBlob(ctx, d, readerFunc(func(p []byte) (int, error) {
		n, err := src.Read(p)
		watch(n)
		return n, err
	})))
	require.NoError(t, c.ReadBlob(ctx, d, writerFunc(func(p []byte) (int, error) {
		watch(len(p))
		return len(p), nil
	})))
	require.Equal(t, int64(2*size/every), looked)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
