// SPDX-License-Identifier: Apache-2.0

package download

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/internal/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDownload(t *testing.T) {
	stores(t, func(t *testing.T, inStore bool) {
		var mu sync.Mutex
		became := map[string]int{}
		r := newRig(t, func(o *Options) {
			o.InStore, o.OnArtifact = inStore, func(result string) {
				mu.Lock()
				defer mu.Unlock()
				became[result]++
			}
		})
		r.object(r.artifacts("a.bin", "b.bin", "c.bin", "d.bin", "e.bin", "f.bin"))
		f := jobFor("object")
		o, err := r.w.run(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, "Artifacts downloaded", o.Description)
		got := r.find()
		require.True(t, got.GetAvailable())
		require.Empty(t, got.GetFailure())
		lookup, err := r.store.Lookup(t.Context(), "object")
		require.NoError(t, err)
		require.Equal(t, "lookup", string(lookup))
		for _, a := range r.records("object") {
			require.Equal(t, rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, a.GetState())
			require.Equal(t, uint32(1), a.GetAttempts())
			r.requireContent(a, inStore)
		}
		require.Contains(t, f.texts, "100 Downloading artifacts: 6 of 6 done")
		var result struct {
			Cache     string
			Artifacts []resultArtifact
		}
		require.NoError(t, json.Unmarshal([]byte(o.ResultJSON), &result))
		require.Len(t, result.Artifacts, 6)
		require.True(t, result.Artifacts[0].Available)
		_, err = os.Stat(filepath.Join(r.dir, artifact.IncomingDir("object")))
		require.ErrorIs(t, err, os.ErrNotExist)

		// Whoever takes the job over after its last stage asks nobody.
		before := len(r.requests())
		_, err = r.w.run(t.Context(), jobFor("object"))
		require.NoError(t, err)
		require.Len(t, r.requests(), before)
		require.Equal(t, map[string]int{observe.ArtifactFetched: 6, observe.ArtifactFound: 6}, became)
	})
}

func TestEphemeralDownload(t *testing.T) {
	stores(t, func(t *testing.T, inStore bool) {
		r := newRig(t, func(o *Options) { o.InStore = inStore })
		require.NoError(t, r.store.CreateCache(t.Context(), "one-x", r.artifacts("a.bin")))
		_, err := r.w.run(t.Context(), jobFor("one-x"))
		require.NoError(t, err)
		r.requireContent(r.records("one-x")[0], inStore)
	})
}

// TestSecrets needs the token and the whole location, which the record lacks.
func TestSecrets(t *testing.T) {
	r := newRig(t)
	list := r.artifacts("a.bin")
	list[0].LocationType = "artifactory"
	r.object(list)
	f := jobFor("object")
	f.secrets = &rackbusv1.DownloadSecrets{AccessToken: "pl4nted", Locations: map[string]string{"prod/a.bin": r.url + "/a.bin?sig=pl4nted"}}
	o, err := r.w.run(t.Context(), f)
	require.NoError(t, err)
	require.Equal(t, []string{"GET /a.bin?sig=pl4nted pl4nted "}, r.requests())
	shown := o.ResultJSON + fmt.Sprint(f.texts) + r.find().String() + r.records("object")[0].String()
	require.NotContains(t, shown, "pl4nted")

	f = jobFor("object")
	f.bad = errors.New("no key")
	_, err = r.w.run(t.Context(), f)
	var failure *agent.FailureError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, job.FailureCredentialsUnreadable, failure.Failure.FailureCode)
	require.NotEmpty(t, r.find().GetFailure())
}

func TestFailures(t *testing.T) {
	stores(t, func(t *testing.T, inStore bool) {
		r := newRig(t, func(o *Options) { o.InStore = inStore })
		names := []string{"a.bin", "b.bin", "c.bin", "d.bin", "e.bin", "f.bin", "g.bin", "h.bin"}
		list := r.artifacts(names...)
		list[7].Required = false
		r.object(list)
		for _, n := range names[1:] {
			r.broken[n] = true
		}
		_, err := r.w.run(t.Context(), jobFor("object"))
		var failure *agent.FailureError
		require.ErrorAs(t, err, &failure)
		require.Equal(t, job.FailureArtifactDownloadFailed, failure.Failure.FailureCode)
		text := failure.Failure.Message
		require.True(t, strings.HasPrefix(text, "6 required firmware artifact downloads failed: C-"), text)
		require.Equal(t, 5, strings.Count(text, "status 404"))
		require.True(t, strings.HasSuffix(text, "; ...and 1 more"), text)
		o := r.find()
		require.False(t, o.GetAvailable())
		require.Equal(t, text, o.GetFailure())
		require.Equal(t, append([]string{"available"}, slicesRepeat("failed", 7)...), r.states("object"))
		require.Contains(t, r.records("object")[1].GetFailure(), "status 404")

		// A retry fetches only what is missing.
		r.mu.Lock()
		clear(r.broken)
		r.asked = nil
		r.mu.Unlock()
		n, err := r.store.RetryDownload(t.Context(), "object")
		require.NoError(t, err)
		require.Equal(t, 7, n)
		_, err = r.w.run(t.Context(), jobFor("object"))
		require.NoError(t, err)
		require.True(t, r.find().GetAvailable())
		require.Len(t, r.requests(), 7)
	})
}

func slicesRepeat(s string, n int) []string {
	return strings.Fields(strings.Repeat(s+" ", n))
}

func TestOptionalArtifactMayFail(t *testing.T) {
	r := newRig(t)
	list := r.artifacts("a.bin", "b.bin")
	list[1].Required = false
	r.object(list)
	r.broken["b.bin"] = true
	_, err := r.w.run(t.Context(), jobFor("object"))
	require.NoError(t, err)
	require.True(t, r.find().GetAvailable())
	require.Equal(t, []string{"available", "failed"}, r.states("object"))
}

func TestPolicyAndLimits(t *testing.T) {
	r := newRig(t)
	list := r.artifacts("a.bin", "b.bin")
	list[0].Location = "http://169.254.169.254/a.bin"
	list[1].Path = "../b.bin"
	r.object(list)
	_, err := r.w.run(t.Context(), jobFor("object"))
	require.ErrorContains(t, err, "refused by the artifact policy")
	require.ErrorContains(t, err, "2 required")
	require.Empty(t, r.requests())

	var many []string
	for i := range 21 {
		many = append(many, fmt.Sprint(i, ".bin"))
	}
	require.NoError(t, r.store.CreateCache(t.Context(), "many", r.artifacts(many...)))
	_, err = r.w.run(t.Context(), jobFor("many"))
	require.ErrorContains(t, err, "at most 20")
	require.Equal(t, slicesRepeat("failed", 21), r.states("many"))
	_, err = r.w.run(t.Context(), jobFor("../x"))
	require.ErrorIs(t, err, artifact.ErrLocation)
}

// TestDeletedObjectEndsItsDownload removes the cache while a file is under way.
func TestDeletedObjectEndsItsDownload(t *testing.T) {
	stores(t, func(t *testing.T, inStore bool) {
		r := newRig(t, func(o *Options) { o.InStore = inStore })
		for _, c := range []struct {
			cache, text string
			create      func()
			remove      func() error
		}{
			{"object", "download cancelled: firmware object object was deleted", func() { r.object(r.artifacts("a.bin", "b.bin")) },
				func() error { return r.store.Delete(t.Context(), "object") }},
			{"one-x", "download cancelled: the apply that needed one-x has ended",
				func() { require.NoError(t, r.store.CreateCache(t.Context(), "one-x", r.artifacts("a.bin", "b.bin"))) },
				func() error { return r.store.DropCache(t.Context(), "one-x") }},
		} {
			c.create()
			r.mu.Lock()
			r.held["a.bin"] = true
			r.mu.Unlock()
			done := make(chan error, 1)
			go func() {
				_, err := r.w.run(t.Context(), jobFor(c.cache))
				done <- err
			}()
			await(t, r.holding)
			require.NoError(t, c.remove())
			err := await(t, done)
			require.EqualError(t, err, c.text)
			require.ErrorIs(t, err, agent.ErrCancelled)
			require.NoDirExists(t, filepath.Join(r.dir, artifact.CacheDir(c.cache, c.cache != "object")))
			require.NoDirExists(t, filepath.Join(r.dir, artifact.IncomingDir(c.cache)))
		}
		_, err := r.w.run(t.Context(), jobFor("none"))
		require.ErrorContains(t, err, "was deleted")
	})
}

func await[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// TestWaysOut cuts a download in every way there is.
func TestWaysOut(t *testing.T) {
	for _, c := range []struct {
		cause  error
		states []string
		reason string
	}{
		{agent.ErrHandedOver, []string{"available", "downloading"}, ""},
		{agent.ErrCancelled, []string{"available", "failed"}, "the download was cancelled"},
		{agent.ErrTerminated, []string{"available", "failed"}, "the download was cancelled"},
		{agent.ErrDeadline, []string{"available", "failed"}, "the download did not end within its run limit"},
	} {
		t.Run(c.cause.Error(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.object(r.artifacts("a.bin", "b.bin"))
			r.held["b.bin"] = true
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := r.w.run(ctx, jobFor("object"))
				done <- err
			}()
			await(t, r.holding)
			there := errors.New("there")
			require.ErrorIs(t, r.store.WatchCache(ctx, "object", func(path string, c catalog.ArtifactChange) error {
				if path == "prod/a.bin" && c.GetState() == rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE {
					return there
				}
				return nil
			}, func() {}), there)
			cancel(c.cause)
			require.ErrorIs(t, await(t, done), c.cause)
			require.Equal(t, c.states, r.states("object"))
			require.Equal(t, c.reason, r.find().GetFailure())
		})
	}
}

// TestTakeover ends a process in the middle of a file, and another just before it
// could say that the file is there.
func TestTakeover(t *testing.T) {
	stores(t, func(t *testing.T, inStore bool) {
		r := newRig(t, func(o *Options) { o.InStore = inStore })
		r.object(r.artifacts("a.bin"))
		died := errors.New("died")
		f := jobFor("object")
		f.points = map[string]error{PointFetched: fmt.Errorf("%w: %w", agent.ErrHandedOver, died)}
		r.cut["a.bin"] = 60_000
		_, err := r.w.run(t.Context(), f)
		require.ErrorIs(t, err, died)
		require.Equal(t, []string{"downloading"}, r.states("object"))
		require.Equal(t, []string{"GET /a.bin  ", "GET /a.bin  bytes=60000-"}, r.requests())
		_, err = r.w.run(t.Context(), jobFor("object"))
		require.NoError(t, err)
		require.True(t, r.find().GetAvailable())
		require.Equal(t, "HEAD /a.bin  ", r.requests()[2])
		require.Len(t, r.requests(), 3)
		r.requireContent(r.records("object")[0], inStore)
	})
}

// away fails some calls as a bus does that is away.
type away struct {
	catalog.Store
	mu   sync.Mutex
	fail int
}

func (a *away) UpdateArtifact(ctx context.Context, cache, path string, change func(*catalog.Artifact)) error {
	a.mu.Lock()
	fail := a.fail > 0
	if fail {
		a.fail--
	}
	a.mu.Unlock()
	if fail {
		return errors.New("no broker")
	}
	return a.Store.UpdateArtifact(ctx, cache, path, change)
}

func TestBusAway(t *testing.T) {
	r := newRig(t)
	r.object(r.artifacts("a.bin", "b.bin"))
	r.w.o.Store = &away{Store: r.store, fail: 5}
	_, err := r.w.run(t.Context(), jobFor("object"))
	require.NoError(t, err)
	require.True(t, r.find().GetAvailable())
}

// TestLostFileIsFetchedAgain removes what a record says is there.
func TestLostFileIsFetchedAgain(t *testing.T) {
	r := newRig(t)
	r.object(r.artifacts("a.bin"))
	_, err := r.w.run(t.Context(), jobFor("object"))
	require.NoError(t, err)
	require.NoError(t, artifact.RemoveCache(r.dir, "object", false))
	_, err = r.w.run(t.Context(), jobFor("object"))
	require.NoError(t, err)
	r.requireContent(r.records("object")[0], false)
}
