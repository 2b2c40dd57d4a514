// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/artifacts"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// artifactMiB is the size of the artifact. The throughput is judged from judgedMiB on: less is sent within a blink.
var artifactMiB = flag.Int64("e2e.artifact-mib", 64, "size of the large artifact, in MiB")

const (
	judgedMiB = 1024
	// memoryLimit is how much a process may grow beyond its size when idle, in bytes.
	memoryLimit = 150 << 20
	// judgedRounds is how often the artifact is sent by each way when the throughput is judged; the best of each counts,
	// since other programs on the machine only slow down.
	judgedRounds = 3
	// leastShare is the share of a plain copy's throughput that the agent has to reach.
	leastShare = 0.8
)

// largeArtifact is a package on disk, and served.
type largeArtifact struct {
	path, config string
	size         int64
	digest       string
}

// TestLargeArtifact takes a large package from a server to a tray, with each store of artifacts, and looks at the memory
// of the processes on the way and at the throughput of the upload.
func TestLargeArtifact(t *testing.T) {
	t.Parallel()
	files, roots := startArtifacts(t)
	a := newLargeArtifact(t, files)
	for _, store := range []string{"dir", "bus"} {
		t.Run(store, func(t *testing.T) {
			settings := artifactSettings(roots)
			settings["workflows.artifact_store"] = fmt.Sprintf("%q", store)
			c := cluster.Start(t, cluster.Options{Settings: settings, Racks: []sim.Options{{
				RackID: "large", Compute: 1, Seed: 4, Timing: bmc.Timing{Task: 300 * time.Millisecond, BMCOutage: 200 * time.Millisecond},
			}}})
			a.travels(t, &scene{Cluster: c, Client: c.Client(0)})
		})
	}
}

func newLargeArtifact(t *testing.T, s *artifacts.Server) largeArtifact {
	t.Helper()
	const name, version = "nvfw_P4972_large.fwpkg", "9.9.1"
	a := largeArtifact{path: filepath.Join(t.TempDir(), name)}
	size, err := firmwarepackage.WriteFile(a.path, firmwarepackage.Spec{
		Version: "nvfw_P4972_large", Components: []firmwarepackage.Component{{Name: "BMC", Version: version, Size: *artifactMiB << 20}},
	})
	require.NoError(t, err)
	a.size = size
	content, err := os.Open(a.path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, content.Close()) })
	sum := sha256.New()
	_, err = io.Copy(sum, content)
	require.NoError(t, err)
	a.digest = hex.EncodeToString(sum.Sum(nil))
	s.PutReader(name, size, func() io.ReadSeeker { return io.NewSectionReader(content, 0, size) })
	config, err := json.Marshal(map[string]any{"ProductName": "LARGE", "Milestones": []any{map[string]any{
		"Name": "1", "BoardSKUs": []any{map[string]any{
			"Name": "tray", "Type": "Compute Node", "Components": map[string]any{"Firmware": []any{map[string]any{
				"Component": "BMC", "Version": version, "Type": "Prod", "Locations": []any{map[string]any{
					"Location": s.URL(name), "LocationType": "https", "Type": "Firmware", "Sha256": a.digest,
				}},
			}}},
		}},
	}}})
	require.NoError(t, err)
	a.config = string(config)
	return a
}

// forArtifact returns a context for the work with the artifact, ten times as long as it takes on a slow machine.
func forArtifact(t *testing.T) context.Context {
	limit := releasePatience + time.Duration(*artifactMiB)*time.Second
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, context.DeadlineExceeded)
	t.Cleanup(cancel)
	return ctx
}

func (a largeArtifact) travels(t *testing.T, s *scene) {
	ctx := forArtifact(t)
	watched := append(append(s.Processes(cluster.RoleAPI), s.Processes(cluster.RoleComputeAgent)...), s.Processes(cluster.RoleJobs)...)
	base := map[string]int64{}
	for _, p := range watched {
		require.NoError(t, p.ForgetPeak())
		memory, err := p.Memory()
		require.NoError(t, err)
		base[p.Name] = memory.Resident
	}
	began := time.Now()
	_, err := s.AddFirmwareObject(ctx, &rackmanager.AddFirmwareObjectRequest{ConfigJson: a.config, HardwareType: "large"})
	require.NoError(t, err)
	awaitObject(ctx, t, rackbusv1.NewFirmwareClient(s.Conn), "LARGE_1")
	t.Logf("%d MiB fetched and stored in %s", a.size>>20, time.Since(began).Round(10*time.Millisecond))

	tray := s.Racks[0].Devices()[0]
	var agent, plain []float64
	rounds := 1
	if *artifactMiB >= judgedMiB {
		rounds = judgedRounds
	}
	for range rounds {
		agent = append(agent, a.applied(ctx, t, s))
		plain = append(plain, a.copied(ctx, t, s.Racks[0], tray))
	}
	for _, p := range watched {
		memory, err := p.Memory()
		require.NoError(t, err)
		grown := memory.Peak - base[p.Name]
		t.Logf("%s: %d MiB idle, %d MiB at most", p.Name, base[p.Name]>>20, memory.Peak>>20)
		require.Less(t, grown, int64(memoryLimit), "%s", p.Name)
	}
	share := best(agent) / best(plain)
	t.Logf("upload: agent %.0f MB/s of %.0f, plain copy %.0f MB/s of %.0f, share %.2f", best(agent), agent, best(plain), plain, share)
	if *artifactMiB >= judgedMiB {
		require.GreaterOrEqual(t, share, leastShare, "share of a plain copy's throughput")
	}
}

// applied updates the tray to the stored object and returns the throughput of its upload, in MB/s.
func (a largeArtifact) applied(ctx context.Context, t *testing.T, s *scene) float64 {
	t.Helper()
	rack := s.Racks[0]
	before := len(rack.Uploads(""))
	out, err := s.ApplyStoredFirmwareObject(ctx, &rackmanager.ApplyStoredFirmwareObjectRequest{
		RackId: rack.ID(), ObjectId: "LARGE_1", FirmwareType: "prod", Nodes: s.NodeSet(rack), ForceUpdate: true,
	})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 1)
	s.completed(ctx, t, out.GetResponse().GetJobId())
	uploads := rack.Uploads("")[before:]
	require.Len(t, uploads, 1)
	require.Equal(t, "9.9.1", rack.Devices()[0].Version(cluster.TrayComponent))
	return a.throughput(t, uploads[0])
}

// throughput of an upload that arrived whole, in MB/s, as the device has seen it.
func (a largeArtifact) throughput(t *testing.T, e reqlog.Entry) float64 {
	t.Helper()
	require.True(t, e.Complete)
	require.Equal(t, a.digest, e.SHA256)
	require.Equal(t, a.size, e.Upload.FileBytes)
	return float64(a.size) / 1e3 / e.Upload.DurationMS
}

func best(all []float64) float64 {
	var most float64
	for _, v := range all {
		most = max(most, v)
	}
	return most
}
