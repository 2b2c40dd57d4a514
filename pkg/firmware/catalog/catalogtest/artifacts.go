// SPDX-License-Identifier: Apache-2.0

package catalogtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func artifacts(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	add(t, a, "one", "gb200")
	cache := "one-0f0d0c00"
	require.NoError(t, a.CreateCache(ctx, cache, object("x", "y").Artifacts))
	require.ErrorIs(t, b.CreateCache(ctx, cache, object("x", "y").Artifacts), catalog.ErrExists)
	for _, c := range []struct {
		cache     string
		ephemeral bool
	}{{"one", false}, {cache, true}} {
		got, err := b.CacheArtifacts(ctx, c.cache)
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, "prod/one.bin", got[0].GetPath())
		require.Equal(t, "prod/two.bin", got[1].GetPath())
		require.Equal(t, c.cache, got[0].GetCache())
		require.Equal(t, c.ephemeral, got[0].GetEphemeral())
		require.Equal(t, rackbusv1.ArtifactState_ARTIFACT_STATE_PENDING, got[0].GetState())
	}
	require.NoError(t, b.UpdateArtifact(ctx, cache, "prod/two.bin", func(r *catalog.Artifact) { r.BytesDone = 5 }))
	got, err := a.CacheArtifacts(ctx, cache)
	require.NoError(t, err)
	require.Zero(t, got[0].GetBytesDone())
	require.Equal(t, int64(5), got[1].GetBytesDone())
	waiting, err := b.PendingCaches(ctx)
	require.NoError(t, err)
	require.Len(t, waiting, 2)
	require.Equal(t, "one", waiting[0].Cache)
	require.False(t, waiting[0].Ephemeral)
	require.Equal(t, cache, waiting[1].Cache)
	require.True(t, waiting[1].Ephemeral)
	require.Equal(t, got[1].GetUpdatedAt().AsTime(), waiting[1].Changed)
	for i, state := range []rackbusv1.ArtifactState{rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED} {
		require.NoError(t, b.UpdateArtifact(ctx, "one", got[i].GetPath(), func(r *catalog.Artifact) { r.State = state }))
	}
	waiting, err = a.PendingCaches(ctx)
	require.NoError(t, err)
	require.Len(t, waiting, 1)
	err = b.UpdateArtifact(ctx, cache, "prod/none.bin", func(*catalog.Artifact) {})
	require.ErrorIs(t, err, catalog.ErrNotFound)
	none, err := a.CacheArtifacts(ctx, "none")
	require.NoError(t, err)
	require.Empty(t, none)
}

func artifactsOfOnePath(t *testing.T, a, _ catalog.Store) {
	ctx := t.Context()
	sum := sha256.Sum256(nil)
	one := catalog.Artifact{Path: "prod/x.bin", Location: "https://a.invalid/x.bin", LocationType: "https"}
	mirror := catalog.Artifact{Path: "prod/x.bin", Location: "https://b.invalid/x.bin", LocationType: "https"}
	with := func(a *catalog.Artifact, change func(*catalog.Artifact)) *catalog.Artifact {
		c := &catalog.Artifact{Path: a.GetPath(), Location: a.GetLocation(), LocationType: a.GetLocationType()}
		change(c)
		return c
	}
	digest := func(r *catalog.Artifact) { r.WantSha256 = sum[:] }
	require.NoError(t, a.CreateCache(ctx, "same", []*catalog.Artifact{&one, with(&one, func(r *catalog.Artifact) { r.Required = true })}))
	got, err := a.CacheArtifacts(ctx, "same")
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.True(t, got[0].GetRequired())
	require.NoError(t, a.CreateCache(ctx, "digest", []*catalog.Artifact{with(&one, digest), with(&mirror, digest)}))
	require.ErrorIs(t, a.CreateCache(ctx, "clash", []*catalog.Artifact{&one, &mirror}), catalog.ErrInvalid)
	require.ErrorIs(t, a.CreateCache(ctx, "half", []*catalog.Artifact{with(&one, digest), &mirror}), catalog.ErrInvalid)
	require.ErrorIs(t, a.CreateCache(ctx, "no path", []*catalog.Artifact{{}}), catalog.ErrInvalid)
	require.ErrorIs(t, a.CreateCache(ctx, "digest length", []*catalog.Artifact{{Path: "x", WantSha256: []byte("x")}}), catalog.ErrInvalid)
	many := make([]*catalog.Artifact, catalog.MaxArtifacts+1)
	for i := range many {
		many[i] = &catalog.Artifact{Path: fmt.Sprint("prod/", i)}
	}
	require.ErrorIs(t, a.CreateCache(ctx, "many", many), catalog.ErrInvalid)
	require.NoError(t, a.CreateCache(ctx, "many", many[1:]))
	got, err = a.CacheArtifacts(ctx, "many")
	require.NoError(t, err)
	require.Len(t, got, catalog.MaxArtifacts)
	require.Equal(t, "prod/900", got[catalog.MaxArtifacts-1].GetPath())
}

// concurrentUpdates counts one record up from two sides.
func concurrentUpdates(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	require.NoError(t, a.CreateCache(ctx, "cache", object("x", "y").Artifacts))
	const each = 20
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i, s := range []catalog.Store{a, b} {
		wg.Go(func() {
			for range each {
				errs[i] = errors.Join(errs[i], s.UpdateArtifact(ctx, "cache", "prod/one.bin", func(r *catalog.Artifact) { r.BytesDone++ }))
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	got, err := a.CacheArtifacts(ctx, "cache")
	require.NoError(t, err)
	require.Equal(t, int64(2*each), got[0].GetBytesDone())
}

func watch(t *testing.T, a, b catalog.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, a.CreateCache(ctx, "cache", object("x", "y").Artifacts))
	require.NoError(t, a.CreateCache(ctx, "another", object("x", "y").Artifacts))
	seen := make(chan string, 100)
	current := make(chan struct{})
	done := make(chan error, 1)
	stop := errors.New("enough")
	go func() {
		done <- b.WatchCache(ctx, "cache", func(path string, c catalog.ArtifactChange) error {
			if c.Artifact == nil {
				seen <- path + " gone"
				if path == "prod/two.bin" {
					return stop
				}
				return nil
			}
			seen <- fmt.Sprint(path, " ", c.GetBytesDone())
			return nil
		}, func() { close(current) })
	}()
	next := func() string {
		select {
		case s := <-seen:
			return s
		case <-ctx.Done():
			t.Fatal("nothing came")
			return ""
		}
	}
	require.ElementsMatch(t, []string{"prod/one.bin 0", "prod/two.bin 0"}, []string{next(), next()})
	select {
	case <-current:
	case <-ctx.Done():
		t.Fatal("never current")
	}
	require.NoError(t, a.UpdateArtifact(ctx, "cache", "prod/two.bin", func(r *catalog.Artifact) { r.BytesDone = 9 }))
	require.Equal(t, "prod/two.bin 9", next())
	require.NoError(t, a.DropCache(ctx, "cache"))
	require.NoError(t, a.DropCache(ctx, "another"))
	require.ErrorIs(t, <-done, stop)

	// One that is asked to end, on a cache that does not exist.
	ended, end := context.WithCancel(ctx)
	err := b.WatchCache(ended, "none", func(string, catalog.ArtifactChange) error { return stop }, end)
	require.ErrorIs(t, err, context.Canceled)
}

func readContent(ctx context.Context, s catalog.Store, digest [sha256.Size]byte) (string, error) {
	var b bytes.Buffer
	err := s.ReadContent(ctx, digest, &b)
	return b.String(), err
}

// publish stores content and lets the artifact refer to it.
func publish(t *testing.T, s catalog.Store, cache, path, content string) [sha256.Size]byte {
	t.Helper()
	sum := sha256.Sum256([]byte(content))
	require.NoError(t, s.PutContent(t.Context(), sum, strings.NewReader(content)))
	require.NoError(t, s.UpdateArtifact(t.Context(), cache, path, func(r *catalog.Artifact) { r.Sha256 = sum[:] }))
	kept, err := s.KeepContent(t.Context(), sum)
	require.NoError(t, err)
	require.True(t, kept)
	return sum
}

// dropCache expects that content lives as long as one record refers to it.
func dropCache(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	list := object("x", "y").Artifacts
	require.NoError(t, a.CreateCache(ctx, "first", list))
	require.NoError(t, a.CreateCache(ctx, "second", list))
	shared := publish(t, a, "first", "prod/one.bin", "shared")
	own := publish(t, a, "first", "prod/two.bin", "own")
	publish(t, b, "second", "prod/one.bin", "shared")
	add(t, a, "object", "gb200")
	idle, err := b.IdleCaches(ctx, time.Hour)
	require.NoError(t, err)
	require.Empty(t, idle)
	idle, err = b.IdleCaches(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"first", "second"}, idle, "stored objects are not among them")
	require.NoError(t, b.DropCache(ctx, "first"))
	require.NoError(t, a.DropCache(ctx, "first"), "again")
	got, err := readContent(ctx, a, shared)
	require.NoError(t, err)
	require.Equal(t, "shared", got)
	_, err = readContent(ctx, a, own)
	require.ErrorIs(t, err, catalog.ErrNotFound)
	kept, err := a.KeepContent(ctx, own)
	require.NoError(t, err)
	require.False(t, kept)
	left, err := a.CacheArtifacts(ctx, "first")
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, a.DropCache(ctx, "second"))
	_, err = readContent(ctx, b, shared)
	require.ErrorIs(t, err, catalog.ErrNotFound)
	err = a.PutContent(ctx, own, strings.NewReader("something else"))
	require.ErrorIs(t, err, catalog.ErrInvalid)
}

// sharedContent creates and deletes objects of the same content at the same time.
// What exists in the end has its content.
func sharedContent(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	same := func(id string) catalog.NewObject {
		o := object(id, "gb200")
		o.Manifest, o.Lookup = []byte("the manifest of all"), []byte("the lookup of all")
		return o
	}
	const objects, rounds = 3, 6
	var wg sync.WaitGroup
	errs := make([]error, objects)
	for i := range objects {
		s := []catalog.Store{a, b}[i%2]
		wg.Go(func() {
			id := fmt.Sprint("object-", i)
			for n := range rounds {
				_, err := s.Create(ctx, same(id))
				if err == nil && n < rounds-1 {
					err = s.Delete(ctx, id)
				}
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	for i := range objects {
		manifest, err := a.Manifest(ctx, fmt.Sprint("object-", i))
		require.NoError(t, err)
		require.Equal(t, "the manifest of all", string(manifest))
		lookup, err := b.Lookup(ctx, fmt.Sprint("object-", i))
		require.NoError(t, err)
		require.Equal(t, "the lookup of all", string(lookup))
	}
}

func plans(t *testing.T, a, b catalog.Store) {
	ctx := t.Context()
	_, err := a.FindPlan(ctx, "plan")
	require.ErrorIs(t, err, catalog.ErrNotFound)
	require.NoError(t, a.CreatePlan(ctx, "plan", []byte("frozen"), time.Hour))
	require.ErrorIs(t, b.CreatePlan(ctx, "plan", []byte("other"), time.Hour), catalog.ErrExists)
	_, err = a.Collect(ctx, 0)
	require.NoError(t, err)
	p, err := b.FindPlan(ctx, "plan")
	require.NoError(t, err)
	require.Equal(t, "frozen", string(p.Body))
	require.WithinDuration(t, time.Now(), p.CreatedAt, patience)
}
