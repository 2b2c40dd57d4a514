// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	admit "github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs"
	"github.com/rackbus/rackbus/services/jobs/stoptest"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// stopped is a job of the jobs service itself that is to be stopped.
func (r *rig) stopped(at node.Ref, change ...func(*jobs.Options)) *stoptest.Bench {
	return &stoptest.Bench{
		Conn: r.conn, Connect: r.connect, Family: node.FamilyRack, At: at, Quiet: 200 * time.Millisecond,
		Service: func(o *jobs.Options) {
			for _, c := range change {
				c(o)
			}
		},
	}
}

// depth is how deep a run goes.
func depth() stoptest.Depth {
	if *long {
		return stoptest.All
	}
	return stoptest.Each
}

// A sequence is left where no agent acts for it, and everything is free at once.
func TestStopColdReboot(t *testing.T) {
	t.Parallel()
	acts := func(name string) []stoptest.Stage {
		s := stoptest.Cut(name)
		s[0].Told = true // until no agent acts for it
		return s
	}
	stoptest.Kind{
		Stages: slices.Concat(
			acts("prestage_shutdown_compute"), stoptest.Cut("prestage_verify_compute_down"),
			acts("power_off_shelves"), stoptest.Cut("verify_discharged"),
			acts("power_on_shelves"), stoptest.Cut("verify_bmc_up", "verify_nvos_ready"),
			acts("power_on_compute"), stoptest.Cut("wait_compute_boot"),
		),
		New: func(t *testing.T) *stoptest.Bench {
			s := newIdleSite(t, steady(), hardwareFamilies()...)
			b := s.stopped(ownNode, hasty, quickReboot)
			b.Admit, b.Ended = s.reboot, s.requireNothingKept
			b.Requests = func() []stoptest.Request {
				var out []stoptest.Request
				for _, e := range s.rack.Requests("", reqlog.Filter{}) {
					out = append(out, stoptest.Request{At: e.Time, Text: fmt.Sprintf("%s %s %s", e.Device, e.Method, e.Path)})
				}
				return out
			}
			return b
		},
	}.Test(t, depth())
}

// A download that is stopped asks its server for nothing more.
func TestStopDownload(t *testing.T) {
	t.Parallel()
	stoptest.Kind{
		Stages: append(stoptest.Cut("download"), stoptest.Stage{
			Name: "publish", End: "publish", Status: job.StageCompleted, State: job.StateCompleted,
		}),
		New: func(t *testing.T) *stoptest.Bench {
			d, r := newDepot(t, 0), newRigTimed(t, steady())
			var mu sync.Mutex
			var requests []stoptest.Request
			serve := d.Config.Handler
			d.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				mu.Lock()
				requests = append(requests, stoptest.Request{At: time.Now(), Text: q.Method + " " + q.URL.Path})
				mu.Unlock()
				serve.ServeHTTP(w, q)
			})
			sum := sha256.Sum256(d.body)
			_, err := catalog.NewBus(r.conn, nil).Create(t.Context(), catalog.NewObject{
				ID: "object", HardwareType: "any", Manifest: []byte("{}"), Lookup: []byte("lookup"),
				Artifacts: []*catalog.Artifact{{
					Path: "prod/x.bin", Location: d.URL + "/x.bin", LocationType: "artifactory", Component: "BMC", Required: true, WantSha256: sum[:],
				}},
			})
			require.NoError(t, err)
			at := node.Ref{RackID: "firmware", NodeID: "object"}
			b := r.stopped(at, hasty, d.options(t.TempDir(), false, nil))
			b.Requests = func() []stoptest.Request {
				mu.Lock()
				defer mu.Unlock()
				return append([]stoptest.Request(nil), requests...)
			}
			b.Admit = func() job.ID {
				a, err := admit.New(admit.Options{Conn: r.conn, Logger: r.log})
				require.NoError(t, err)
				defer a.Close()
				res, err := a.AdmitLeaf(t.Context(), admit.Request{
					Type: job.TypeArtifactDownload, RackID: at.RackID,
					Nodes: []admit.Node{{Ref: at, Family: node.FamilyRack, Command: func(job.ID) (*rackbusv1.JobCommand, error) {
						return &rackbusv1.JobCommand{
							Target:    &rackbusv1.NodeTarget{RackId: at.RackID, NodeId: at.NodeID},
							Operation: &rackbusv1.JobCommand_ArtifactDownload{ArtifactDownload: &rackbusv1.ArtifactDownload{Cache: "object"}},
						}, nil
					}}},
				})
				require.NoError(t, err)
				return res.JobID
			}
			return b
		},
	}.Test(t, depth())
}
