// SPDX-License-Identifier: Apache-2.0

package download

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

const patience = 20 * time.Second

// fakeTask runs stages as the runtime does, as far as it matters here. The runtime
// itself is in the tests of the service.
type fakeTask struct {
	cmd     *rackbusv1.JobCommand
	secrets *rackbusv1.DownloadSecrets
	bad     error
	points  map[string]error
	mu      sync.Mutex
	texts   []string
	stages  []string
}

func (f *fakeTask) Command() *rackbusv1.JobCommand { return f.cmd }
func (f *fakeTask) Logger() *slog.Logger           { return slog.New(slog.DiscardHandler) }

func (f *fakeTask) Secrets(into message) error {
	switch {
	case f.bad != nil:
		return f.bad
	case f.secrets == nil:
		return credentials.ErrNone
	}
	proto.Merge(into, f.secrets)
	return nil
}

func (f *fakeTask) Progress(percent int, description string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = append(f.texts, fmt.Sprint(percent, " ", description))
}

func (f *fakeTask) Failpoint(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.points[name]
	delete(f.points, name)
	return err
}

func (f *fakeTask) RunStages(ctx context.Context, stages []agent.Stage) error {
	for _, s := range stages {
		f.stages = append(f.stages, s.Name)
		err := s.Run(ctx)
		for n := 1; n < s.Attempts && errors.As(err, new(*agent.RetryError)) && ctx.Err() == nil; n++ {
			err = s.Run(ctx)
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if err != nil && !strings.HasPrefix(err.Error(), "nothing to do: ") {
			return fmt.Errorf("stage %s: %w", s.Name, err)
		}
	}
	return nil
}

// rig is a catalogue and a server with files.
type rig struct {
	t     *testing.T
	store catalog.Store
	dir   string
	url   string
	w     *Workflow
	mu    sync.Mutex
	asked []string
	// broken answers with a status, held answers never.
	broken, held map[string]bool
	cut          map[string]int
	holding      chan struct{}
	// asking is called before a file is given.
	asking func(name string)
}

func body(name string) []byte { return bytes.Repeat([]byte(name+" "), 20_000) }

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{
		t: t, store: catalog.NewMemory(), dir: t.TempDir(), broken: map[string]bool{}, held: map[string]bool{},
		cut: map[string]int{}, holding: make(chan struct{}, 10),
	}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	f := artifact.New(artifact.Options{
		Policy: artifact.Policy{Schemes: []string{"http"}, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Timing: artifact.Timing{PauseMin: time.Millisecond, PauseMax: time.Millisecond, Attempts: 2, Progress: time.Nanosecond},
		Limits: artifact.Limits{MaxFiles: 20},
	})
	t.Cleanup(f.Close)
	o := Options{Store: r.store, Fetcher: f, FirmwareDir: r.dir}
	for _, c := range change {
		c(&o)
	}
	r.w = New(o)
	return r
}

func (r *rig) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	name := strings.TrimPrefix(q.URL.Path, "/")
	r.mu.Lock()
	r.asked = append(r.asked, fmt.Sprint(q.Method, " ", q.URL.RequestURI(), " ", q.Header.Get("X-JFrog-Art-Api"), " ", q.Header.Get("Range")))
	broken, held, cut := r.broken[name], r.held[name], r.cut[name]
	delete(r.cut, name)
	asking := r.asking
	r.mu.Unlock()
	if asking != nil {
		asking(name)
	}
	switch {
	case broken:
		w.WriteHeader(http.StatusNotFound)
	case held:
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(body(name)[:1000])
		w.(http.Flusher).Flush()
		r.holding <- struct{}{}
		<-q.Context().Done()
	case cut > 0:
		w.Header().Set("ETag", `"`+name+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(body(name))))
		_, _ = w.Write(body(name)[:cut])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("ETag", `"`+name+`"`)
		http.ServeContent(w, q, name, time.Time{}, bytes.NewReader(body(name)))
	}
}

func (r *rig) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}

func (r *rig) artifacts(names ...string) []*catalog.Artifact {
	var list []*catalog.Artifact
	for _, n := range names {
		list = append(list, &catalog.Artifact{
			Path: "prod/" + n, Location: r.url + "/" + n, LocationType: "http", Component: "C-" + n, Required: true,
		})
	}
	return list
}

func (r *rig) object(list []*catalog.Artifact) {
	r.t.Helper()
	_, err := r.store.Create(r.t.Context(), catalog.NewObject{
		ID: "object", HardwareType: "any", Manifest: []byte("{}"), Lookup: []byte("lookup"), Artifacts: list,
	})
	require.NoError(r.t, err)
}

func jobFor(cache string) *fakeTask {
	return &fakeTask{cmd: &rackbusv1.JobCommand{Operation: &rackbusv1.JobCommand_ArtifactDownload{
		ArtifactDownload: &rackbusv1.ArtifactDownload{Cache: cache},
	}}}
}

func (r *rig) find() *catalog.Object {
	r.t.Helper()
	o, err := r.store.Find(r.t.Context(), "object")
	require.NoError(r.t, err)
	return o
}

func (r *rig) records(cache string) []*catalog.Artifact {
	r.t.Helper()
	list, err := r.store.CacheArtifacts(r.t.Context(), cache)
	require.NoError(r.t, err)
	return list
}

func (r *rig) states(cache string) []string {
	var out []string
	for _, a := range r.records(cache) {
		out = append(out, strings.ToLower(strings.TrimPrefix(a.GetState().String(), "ARTIFACT_STATE_")))
	}
	return out
}

func stores(t *testing.T, test func(t *testing.T, inStore bool)) {
	for _, inStore := range []bool{false, true} {
		t.Run(fmt.Sprint("in store ", inStore), func(t *testing.T) {
			t.Parallel()
			test(t, inStore)
		})
	}
}

// requireContent expects an artifact where agents look for it.
func (r *rig) requireContent(a *catalog.Artifact, inStore bool) {
	r.t.Helper()
	want := body(strings.TrimPrefix(a.GetPath(), "prod/"))
	sum := sha256.Sum256(want)
	require.Equal(r.t, sum[:], a.GetSha256())
	require.Equal(r.t, int64(len(want)), a.GetBytesTotal())
	require.Equal(r.t, int64(len(want)), a.GetBytesDone())
	var got bytes.Buffer
	if inStore {
		require.NoError(r.t, r.store.ReadContent(r.t.Context(), sum, &got))
	} else {
		data, err := os.ReadFile(filepath.Join(r.dir, artifact.CacheDir(a.GetCache(), a.GetEphemeral()), a.GetPath()))
		require.NoError(r.t, err)
		got.Write(data)
	}
	require.Equal(r.t, want, got.Bytes())
}
