// SPDX-License-Identifier: Apache-2.0

package artifactcache_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/artifactcache"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// rig is a catalogue, and an agent's cache that reads from it.
type rig struct {
	t     *testing.T
	store *counted
	dir   string
	cache *artifactcache.Cache
}

// counted counts what is read from the store, and lets reads fail.
type counted struct {
	catalog.Store
	mu    sync.Mutex
	reads int
	fail  int
	// failed is told of every read that failed.
	failed chan struct{}
}

var errAway = errors.New("away")

func (c *counted) ReadContent(ctx context.Context, d [sha256.Size]byte, w io.Writer) error {
	c.mu.Lock()
	c.reads++
	fail := c.fail > 0
	if fail {
		c.fail--
	}
	c.mu.Unlock()
	if fail {
		c.failed <- struct{}{}
		return errAway
	}
	return c.Store.ReadContent(ctx, d, w)
}

func newRig(t *testing.T, change ...func(*artifactcache.Options)) *rig {
	t.Helper()
	r := &rig{t: t, store: &counted{Store: catalog.NewMemory(), failed: make(chan struct{}, 10)}, dir: t.TempDir()}
	r.restart(change...)
	return r
}

// restart begins anew with what is on disk.
func (r *rig) restart(change ...func(*artifactcache.Options)) {
	o := artifactcache.Options{Store: r.store, FirmwareDir: r.dir, InStore: true, Pause: time.Millisecond, ShareLag: time.Nanosecond}
	for _, c := range change {
		c(&o)
	}
	r.cache = artifactcache.New(o)
}

func (r *rig) create(cache string, names ...string) {
	r.t.Helper()
	var list []*catalog.Artifact
	for _, n := range names {
		list = append(list, &catalog.Artifact{Path: "prod/" + n, Location: "https://h.invalid/" + n, LocationType: "https"})
	}
	require.NoError(r.t, r.store.CreateCache(r.t.Context(), cache, list))
}

func (r *rig) set(cache, name string, change func(*catalog.Artifact)) {
	r.t.Helper()
	require.NoError(r.t, r.store.UpdateArtifact(r.t.Context(), cache, "prod/"+name, change))
}

// publish makes an artifact available in the store.
func (r *rig) publish(cache, name string, data []byte) {
	r.t.Helper()
	sum := sha256.Sum256(data)
	require.NoError(r.t, r.store.PutContent(r.t.Context(), sum, bytes.NewReader(data)))
	r.set(cache, name, func(a *catalog.Artifact) { available(a, data) })
}

func available(a *catalog.Artifact, data []byte) {
	sum := sha256.Sum256(data)
	a.State, a.Sha256, a.BytesTotal = rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, sum[:], int64(len(data))
}

func ref(cache, name string) *rackbusv1.ArtifactRef {
	return &rackbusv1.ArtifactRef{Cache: cache, Path: "prod/" + name}
}

func (r *rig) wait(cache, name string) (artifactcache.File, error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	return r.cache.Wait(ctx, ref(cache, name), nil)
}

func (r *rig) requireFile(f artifactcache.File, want []byte) {
	r.t.Helper()
	got, err := os.ReadFile(f.Path)
	require.NoError(r.t, err)
	require.Equal(r.t, want, got)
	require.Equal(r.t, sha256.Sum256(want), f.SHA256)
	require.Equal(r.t, int64(len(want)), f.Size)
}

func TestWaitFollowsTheDownload(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create("cache", "x.bin")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	seen := make(chan string, 10)
	type result struct {
		file artifactcache.File
		err  error
	}
	done := make(chan result, 1)
	go func() {
		f, err := r.cache.Wait(ctx, ref("cache", "x.bin"), func(done, total int64) { seen <- fmt.Sprint(done, "/", total) })
		done <- result{f, err}
	}()
	require.Equal(t, "0/0", <-seen)
	r.set("cache", "x.bin", func(a *catalog.Artifact) {
		a.State, a.BytesDone, a.BytesTotal = rackbusv1.ArtifactState_ARTIFACT_STATE_DOWNLOADING, 3, 7
	})
	for told := <-seen; told != "3/7"; told = <-seen {
		require.Equal(t, "0/0", told, "it may be told twice, before and behind the end of what there was")
	}
	r.publish("cache", "x.bin", []byte("content"))
	got := <-done
	require.NoError(t, got.err)
	r.requireFile(got.file, []byte("content"))
	require.Equal(t, "x.bin", filepath.Base(got.file.Path))
}

// A file may be in line behind others for longer than a download may be silent.
func TestWaitInLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const silence = time.Minute
		r := newRig(t, func(o *artifactcache.Options) { o.Silence = silence })
		r.create("cache", "first.bin", "last.bin")
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := r.cache.Wait(t.Context(), ref("cache", "last.bin"), nil)
			done <- err
		}()
		for n := int64(1); time.Since(began) < 4*silence; n++ {
			r.set("cache", "first.bin", func(a *catalog.Artifact) { a.BytesDone = n })
			select {
			case err := <-done:
				require.Fail(t, "given up although the download goes on", "%v", err)
			case <-time.After(silence / 5):
			}
		}
		r.publish("cache", "last.bin", []byte("content"))
		require.NoError(t, <-done)
	})
}

func TestWaitEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *artifactcache.Options) { o.Silence, o.Appear = 5*time.Second, 2*time.Second })
		r.create("cache", "failed.bin", "silent.bin")
		r.set("cache", "failed.bin", func(a *catalog.Artifact) {
			a.State, a.Failure = rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED, "status 404"
		})
		_, err := r.wait("cache", "failed.bin")
		require.ErrorIs(t, err, artifactcache.ErrFailed)
		require.ErrorContains(t, err, "status 404")
		_, err = r.wait("cache", "silent.bin")
		require.ErrorIs(t, err, artifactcache.ErrSilent)
		_, err = r.wait("cache", "none.bin")
		require.ErrorIs(t, err, artifactcache.ErrGone)
		_, err = r.wait("none", "x.bin")
		require.ErrorIs(t, err, artifactcache.ErrGone)
		for _, bad := range []*rackbusv1.ArtifactRef{{Cache: "..", Path: "prod/x"}, {Cache: "c", Path: "../x"}, {Cache: "c", Path: "a/../x"}} {
			_, err = r.cache.Wait(t.Context(), bad, nil)
			require.ErrorIs(t, err, artifactcache.ErrGone)
		}
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err = r.cache.Wait(ctx, ref("cache", "silent.bin"), func(int64, int64) { cancel(stop) })
		require.ErrorIs(t, err, stop)
		_, err = r.cache.Wait(t.Context(), ref("cache", "silent.bin"), func(int64, int64) { _ = r.store.DropCache(t.Context(), "cache") })
		require.ErrorIs(t, err, artifactcache.ErrGone)
	})
}

// TestArtifactMayAppearLater begins to wait before the cache exists.
func TestArtifactMayAppearLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := r.cache.Wait(ctx, ref("cache", "x.bin"), nil)
		done <- err
	}()
	r.create("cache", "x.bin")
	r.publish("cache", "x.bin", []byte("content"))
	require.NoError(t, <-done)
}

// TestFetchedOncePerProcess lets many nodes ask, and restarts the process.
func TestFetchedOncePerProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create("cache", "x.bin")
	data := bytes.Repeat([]byte("content "), 10_000)
	r.publish("cache", "x.bin", data)
	r.store.fail = 2
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { _, errs[i] = r.wait("cache", "x.bin") })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, 3, r.store.reads)
	r.restart()
	f, err := r.wait("cache", "x.bin")
	require.NoError(t, err)
	require.Equal(t, 3, r.store.reads)
	r.requireFile(f, data)

	// What was changed on disk is fetched again.
	require.NoError(t, os.WriteFile(f.Path, data[1:], 0o600))
	f, err = r.wait("cache", "x.bin")
	require.NoError(t, err)
	require.Equal(t, 4, r.store.reads)
	r.requireFile(f, data)
	changed := append([]byte("X"), data[1:]...)
	require.NoError(t, os.WriteFile(f.Path, changed, 0o600))
	f, err = r.wait("cache", "x.bin")
	require.NoError(t, err)
	require.Equal(t, 5, r.store.reads)
	r.requireFile(f, data)
}

// TestWhoGivesUpDoesNotTakeOthersAlong ends the one that fetches.
func TestWhoGivesUpDoesNotTakeOthersAlong(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *artifactcache.Options) { o.Pause = time.Hour })
	r.create("cache", "x.bin")
	r.publish("cache", "x.bin", []byte("content"))
	r.store.fail = 1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.cache.Wait(ctx, ref("cache", "x.bin"), nil)
		first <- err
	}()
	<-r.store.failed // it waits for its next try now
	go func() {
		_, err := r.wait("cache", "x.bin")
		second <- err
	}()
	cancel()
	require.Error(t, <-first) // that it was cancelled, or why its try had failed just before
	require.NoError(t, <-second)
}

func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *artifactcache.Options) { o.MaxBytes, o.Pin = 250, time.Hour })
	data := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 100) }
	name := func(i int) string { return fmt.Sprint("file-", i, ".bin") }
	r.create("cache", name(0), name(1), name(2), name(3))
	var files [4]artifactcache.File
	get := func(i int) {
		t.Helper()
		f, err := r.wait("cache", name(i))
		require.NoError(t, err)
		files[i] = f
	}
	age := func(i int, d time.Duration) {
		at := time.Now().Add(-d)
		require.NoError(t, os.Chtimes(filepath.Dir(files[i].Path), at, at))
	}
	for i := range files {
		r.publish("cache", name(i), data(i))
	}
	get(0)
	get(1)
	age(0, 2*time.Hour)
	age(1, 3*time.Hour)
	get(2) // the oldest goes
	require.FileExists(t, files[0].Path)
	require.NoFileExists(t, files[1].Path)
	age(0, 2*time.Hour)
	get(0) // used again
	age(2, 90*time.Minute)
	get(3)
	require.FileExists(t, files[0].Path)
	require.NoFileExists(t, files[2].Path)
	get(2) // all others are in use
	for _, i := range []int{0, 2, 3} {
		require.FileExists(t, files[i].Path)
	}
}

func TestSharedDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *artifactcache.Options) { o.InStore = false })
	r.create("cache", "x.bin", "none.bin", "wrong.bin")
	put := func(name string, data []byte) {
		file := filepath.Join(r.dir, filepath.FromSlash(artifact.CacheDir("cache", true)), "prod", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
	for _, name := range []string{"x.bin", "none.bin", "wrong.bin"} {
		r.set("cache", name, func(a *catalog.Artifact) { available(a, []byte("content")) })
	}
	put("x.bin", []byte("content"))
	f, err := r.wait("cache", "x.bin")
	require.NoError(t, err)
	r.requireFile(f, []byte("content"))
	require.Zero(t, r.store.reads)
	_, err = r.wait("cache", "none.bin")
	require.ErrorIs(t, err, fs.ErrNotExist)
	put("wrong.bin", []byte("other"))
	_, err = r.wait("cache", "wrong.bin")
	require.ErrorIs(t, err, artifactcache.ErrDigest)
	put("wrong.bin", []byte("c0ntent"))
	_, err = r.wait("cache", "wrong.bin")
	require.ErrorIs(t, err, artifactcache.ErrDigest)
}

// TestOverTheBus uses the store that agents use.
func TestOverTheBus(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Options{Name: "test", StoreDir: t.TempDir(), Host: "127.0.0.1", Port: -1})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	c, err := bus.Connect(bus.Options{URLs: []string{b.URL()}, Name: t.Name(), Role: "test"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	require.NoError(t, c.Provision(t.Context()))
	r := &rig{t: t, store: &counted{Store: catalog.NewBus(c, nil)}, dir: t.TempDir()}
	r.restart()
	r.create("cache", "x.bin")
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var f artifactcache.File
	waiting := make(chan struct{})
	var once sync.Once
	go func() {
		var err error
		f, err = r.cache.Wait(ctx, ref("cache", "x.bin"), func(int64, int64) { once.Do(func() { close(waiting) }) })
		done <- err
	}()
	<-waiting
	r.publish("cache", "x.bin", data)
	require.NoError(t, <-done)
	r.requireFile(f, data)
}
