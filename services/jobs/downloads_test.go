// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs"
)

// depot is an artifact server that wants a token, and gives its first answers only
// in part.
type depot struct {
	*httptest.Server
	body []byte

	mu     sync.Mutex
	halves int
	ranges []string
	tokens []string
	// half is told of every answer that stops halfway.
	half chan struct{}
}

func newDepot(t *testing.T, halves int) *depot {
	t.Helper()
	d := &depot{body: bytes.Repeat([]byte("0123456789abcdef"), 60_000), halves: halves, half: make(chan struct{}, 10)}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	d.ranges = append(d.ranges, r.Header.Get("Range"))
	d.tokens = append(d.tokens, r.Header.Get("X-JFrog-Art-Api"))
	stop := d.halves > 0
	d.halves--
	d.mu.Unlock()
	w.Header().Set("ETag", `"one"`)
	if !stop {
		http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(d.body))
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(d.body)))
	_, _ = w.Write(d.body[:len(d.body)/2])
	w.(http.Flusher).Flush()
	d.half <- struct{}{}
	<-r.Context().Done() // until the client has gone
}

// downloads are options of a service that downloads from this host.
func (d *depot) options(dir string, inStore bool, opener *seal.Opener) func(*jobs.Options) {
	return func(o *jobs.Options) {
		o.FirmwareDir, o.ArtifactsInStore, o.Opener = dir, inStore, opener
		o.DrainTimeout = 3 * time.Second
		o.Artifacts = artifact.Options{
			Policy: artifact.Policy{Schemes: []string{"http"}, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			Timing: artifact.Timing{PauseMin: time.Millisecond, PauseMax: time.Millisecond, Progress: time.Millisecond},
		}
	}
}

// partWritten reports whether a part of a file lies below the directory: bytes are counted before they are written.
func partWritten(dir string) bool {
	written := false
	_ = filepath.WalkDir(dir, func(name string, e os.DirEntry, _ error) error {
		if strings.HasSuffix(name, ".part") && e != nil {
			i, err := e.Info()
			written = written || err == nil && i.Size() > 0
		}
		return nil
	})
	return written
}

// TestDownloadGoesOnAfterARestart stops the service in the middle of a file. The
// next one opens the token that the command carries, and asks for the rest.
func TestDownloadGoesOnAfterARestart(t *testing.T) {
	for _, inStore := range []bool{false, true} {
		t.Run("in store "+strconv.FormatBool(inStore), func(t *testing.T) {
			t.Parallel()
			d, r := newDepot(t, 1), newRigTimed(t, quickTakeover())
			store := catalog.NewBus(r.conn, nil)
			ctx := t.Context()
			sum := sha256.Sum256(d.body)
			_, err := store.Create(ctx, catalog.NewObject{
				ID: "object", HardwareType: "any", Manifest: []byte("{}"), Lookup: []byte("lookup"),
				Artifacts: []*catalog.Artifact{{
					Path: "prod/x.bin", Location: d.URL + "/x.bin", LocationType: "artifactory", Component: "BMC", Required: true, WantSha256: sum[:],
				}},
			})
			require.NoError(t, err)

			seed, public, err := seal.GenerateFamilyKey()
			require.NoError(t, err)
			opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
			require.NoError(t, err)
			sealer, err := seal.NewSealer(seal.PublicKeys{node.FamilyRack: {public}})
			require.NoError(t, err)
			session, err := sealer.NewSession(node.FamilyRack)
			require.NoError(t, err)
			dir := t.TempDir()
			first := r.start(hasty, d.options(dir, inStore, opener))
			a, err := admit.New(admit.Options{Conn: r.conn, Logger: r.log})
			require.NoError(t, err)
			t.Cleanup(a.Close)
			res, err := a.AdmitLeaf(ctx, admit.Request{
				Type: job.TypeArtifactDownload, RackID: "firmware",
				Nodes: []admit.Node{{
					Ref: node.Ref{RackID: "firmware", NodeID: "object"}, Family: node.FamilyRack,
					Command: func(id job.ID) (*rackbusv1.JobCommand, error) {
						sealed, err := credentials.SealSecrets(session, id.String(), &rackbusv1.DownloadSecrets{AccessToken: "pl4nted"})
						return &rackbusv1.JobCommand{
							Secrets: sealed, Target: &rackbusv1.NodeTarget{RackId: "firmware", NodeId: "object"},
							Operation: &rackbusv1.JobCommand_ArtifactDownload{ArtifactDownload: &rackbusv1.ArtifactDownload{Cache: "object"}},
						}, err
					},
				}},
			})
			require.NoError(t, err)
			select {
			case <-d.half:
			case <-time.After(patience):
				t.Fatal("nobody downloads")
			}
			r.await("the first half to be counted", func() bool {
				list, err := store.CacheArtifacts(ctx, "object")
				require.NoError(t, err)
				return list[0].GetBytesDone() > 0 && partWritten(dir)
			})
			first.stop(t)
			list, err := store.CacheArtifacts(ctx, "object")
			require.NoError(t, err)
			require.Equal(t, rackbusv1.ArtifactState_ARTIFACT_STATE_DOWNLOADING, list[0].GetState())

			registry := prometheus.NewRegistry()
			r.start(hasty, d.options(dir, inStore, opener), func(o *jobs.Options) { o.Registerer = registry })
			r.awaitState(res.JobID, job.StateCompleted)
			o, err := store.Find(ctx, "object")
			require.NoError(t, err)
			require.True(t, o.GetAvailable())
			if inStore {
				require.NoError(t, store.ReadContent(ctx, sum, io.Discard))
			} else {
				data, err := os.ReadFile(filepath.Join(dir, "firmware_objects", "object", "prod", "x.bin"))
				require.NoError(t, err)
				require.Equal(t, d.body, data)
			}
			require.Equal(t, []string{"pl4nted", "pl4nted"}, d.tokens)
			require.Regexp(t, `^bytes=[1-9]\d*-$`, d.ranges[1])
			had, err := strconv.Atoi(strings.Trim(d.ranges[1], "bytes=-"))
			require.NoError(t, err)
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP rackbus_artifact_bytes_total Bytes of firmware artifacts that came from their sources, those of tries that failed included.
# TYPE rackbus_artifact_bytes_total counter
rackbus_artifact_bytes_total %d
# HELP rackbus_artifacts_total Firmware artifacts that downloads were to bring, by what became of them, repetitions included.
# TYPE rackbus_artifacts_total counter
rackbus_artifacts_total{result="failed"} 0
rackbus_artifacts_total{result="fetched"} 1
rackbus_artifacts_total{result="found"} 0
`, len(d.body)-had)), "rackbus_artifact_bytes_total", "rackbus_artifacts_total"))
		})
	}
}

// TestCleanupDropsTheArtifacts ends an apply whose artifacts are in the catalogue;
// another apply has one of them too.
func TestCleanupDropsTheArtifacts(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newStore(t)
	store := catalog.NewBus(r.conn, nil)
	ctx := t.Context()
	own, shared := []byte("own"), []byte("shared")
	publish := func(cache, path string, data []byte) {
		sum := sha256.Sum256(data)
		require.NoError(t, store.PutContent(ctx, sum, bytes.NewReader(data)))
		require.NoError(t, store.UpdateArtifact(ctx, cache, path, func(a *catalog.Artifact) { a.Sha256 = sum[:] }))
	}
	for _, cache := range []string{"one-x", "two-x"} {
		require.NoError(t, store.CreateCache(ctx, cache, []*catalog.Artifact{{Path: "prod/a.bin"}, {Path: "prod/b.bin"}}))
		publish(cache, "prod/a.bin", shared)
	}
	publish("one-x", "prod/b.bin", own)
	dir := filepath.Join(s.dir, "firmware_objects_ephemeral", "one-x")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "prod"), 0o755))

	r.start(hasty, s.options)
	id := r.planned(2, "firmware_objects_ephemeral/one-x")
	r.finished(id.Child(1), 1, job.StateCompleted)
	r.awaitState(id.Child(1), job.StateCompleted)
	list, err := store.CacheArtifacts(ctx, "one-x")
	require.NoError(t, err)
	require.Len(t, list, 2, "a child still uses them")
	r.finished(id.Child(2), 1, job.StateFailed)
	r.awaitState(id, job.StatePartiallyFailed)
	r.await("the directory to be removed", func() bool { return s.cleanups("removed") == 1 })
	require.NoDirExists(t, dir)
	list, err = store.CacheArtifacts(ctx, "one-x")
	require.NoError(t, err)
	require.Empty(t, list)
	require.ErrorIs(t, store.ReadContent(ctx, sha256.Sum256(own), io.Discard), bus.ErrNotFound)
	require.NoError(t, store.ReadContent(ctx, sha256.Sum256(shared), io.Discard))
}
