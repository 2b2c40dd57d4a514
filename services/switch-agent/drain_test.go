// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"context"
	"crypto/sha256"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/artifactcache"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// drain stops an agent in order.
func (r *running) drain() {
	r.b.t.Helper()
	r.stop()
	select {
	case err := <-r.done:
		require.NoError(r.b.t, err)
		r.done <- nil
	case <-time.After(agenttest.Patience):
		r.b.t.Fatal("the agent does not stop")
	}
}

// A drained agent hands its job over, and the switch notices nothing.
func TestAgentIsDrained(t *testing.T) {
	t.Parallel()
	for _, stage := range []string{"stage_image", "wait_for_install_handoff", "wait_for_target_steady_state"} {
		t.Run("image "+stage, func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) {
				o.Timing.Install, o.Timing.Reboot, o.Knobs.SFTP.BytesPerSecond = 300*time.Millisecond, 600*time.Millisecond, 128<<10
			})
			first := b.start(nil)
			id := b.admitImage(b.imageFile("25.02.4440"))
			b.AwaitStage(id, stage)
			first.drain()
			b.start(nil)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, uint32(1), j.Attempt, "a hand-over is no failed attempt")
			require.Equal(t, 1, b.actions("@install"))
			require.Equal(t, newBuild, b.sw.Images().Current)
		})
	}
	for _, stage := range []string{"monitor_1", "activate_wait", "verify"} {
		t.Run("firmware "+stage, func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) {
				o.Timing.Install, o.Timing.Reboot = 300*time.Millisecond, 600*time.Millisecond
			})
			b.timing.VerifyFirstDelay = 300 * time.Millisecond
			first := b.start(nil)
			id := b.Admit(b.node, activated(b.pldm("", "nvfw_9.fwpkg", "9.9", "BIOS", "EROT")))
			b.AwaitStage(id, stage)
			first.drain()
			b.start(nil)
			j := b.Await(id)
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, 2, b.actions("@install"))
			require.Equal(t, 1, b.actions("@power-cycle"))
		})
	}
}

// Files of the firmware catalogue are waited for, and told by their own names.
func TestCatalogueFiles(t *testing.T) {
	b := newBench(t)
	image := b.imageFile("25.02.4440")
	fw := b.pldm("bmc", "nvfw_9.fwpkg", "9.9", "BMC")
	b.start(nil, func(o *switchagent.Options) { o.FirmwareDir, o.Artifacts = t.TempDir(), catalogue{b.FirmwareDir} })

	image.Artifact, image.File = &rackbusv1.ArtifactRef{Cache: "c", Path: "prod/" + image.GetFile()}, ""
	j := b.Await(b.admitImage(image))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)

	fw.Artifact, fw.File = &rackbusv1.ArtifactRef{Cache: "c", Path: "prod/nvfw_9.fwpkg"}, ""
	j = b.run(activated(fw))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "artifacts", j.StageNames()[0])
	one := decode(t, j.ResultJSON)["targets"].([]any)[0].(map[string]any)
	require.Equal(t, "prod/nvfw_9.fwpkg", one["firmware_file"])
	require.Equal(t, []string{"/host/fw-images/bmc/nvfw_9.fwpkg"}, b.sw.Files("/host/fw-images/bmc"))

	fw.Artifact.Path = "prod/none.fwpkg"
	j = b.run(activated(fw))
	require.Equal(t, job.FailureArtifactDownloadFailed, j.Failure.FailureCode, "%+v", j.Failure)
	require.Equal(t, "planning", decode(t, j.ResultJSON)["phase"])
}

// catalogue has the files of a directory.
type catalogue struct{ dir string }

func (c catalogue) Wait(_ context.Context, ref *rackbusv1.ArtifactRef, progress func(done, total int64)) (artifactcache.File, error) {
	name := filepath.Join(c.dir, path.Base(ref.GetPath()))
	content, err := os.ReadFile(name)
	if err != nil {
		return artifactcache.File{}, artifactcache.ErrGone
	}
	progress(1, 2)
	return artifactcache.File{Path: name, Size: int64(len(content)), SHA256: sha256.Sum256(content)}, nil
}
