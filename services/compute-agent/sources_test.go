// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
)

// store is a catalogue whose files come when the test says so.
type store struct {
	mu    sync.Mutex
	ready chan struct{}
	files map[string]redfishagent.Artifact
	err   error
}

func newStore() *store {
	return &store{ready: make(chan struct{}), files: map[string]redfishagent.Artifact{}}
}

// Wait waits for the file.
func (s *store) Wait(ctx context.Context, ref *rackbusv1.ArtifactRef, progress func(done, total int64)) (redfishagent.Artifact, error) {
	progress(1, 4)
	select {
	case <-s.ready:
	case <-ctx.Done():
		return redfishagent.Artifact{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[ref.GetCache()+"/"+ref.GetPath()], s.err
}

// put makes a file of the firmware directory one of the catalogue.
func (s *store) put(b *bench, target *rackbusv1.FirmwareUpdateTarget) *rackbusv1.FirmwareUpdateTarget {
	b.t.Helper()
	content, err := os.ReadFile(filepath.Join(b.FirmwareDir, target.GetFile()))
	require.NoError(b.t, err)
	path := filepath.Join(b.t.TempDir(), "artifact")
	require.NoError(b.t, os.WriteFile(path, content, 0o600))
	s.files["cache-1/prod/"+target.GetFile()] = redfishagent.Artifact{Path: path, Size: int64(len(content)), SHA256: sha256.Sum256(content)}
	return &rackbusv1.FirmwareUpdateTarget{
		Component: target.GetComponent(), Artifact: &rackbusv1.ArtifactRef{Cache: "cache-1", Path: "prod/" + target.GetFile()},
	}
}

// Files of the catalogue are waited for, and opened where they lie.
func TestArtifacts(t *testing.T) {
	b := newBench(t)
	s := newStore()
	target := s.put(b, b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	b.Start(func(o *agenttest.AgentOptions) { o.Artifacts = s })
	id := b.Admit(b.node, activated(target))
	waiting := b.AwaitStage(id, "artifacts")
	require.Contains(t, waiting.Description, "Stage 0: downloading firmware object artifacts")
	require.Empty(t, b.rack.Requests(b.tray.ID(), anyWrite))
	close(s.ready)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{"nvfw_P4972_9.fwpkg"}, b.files())
	require.Equal(t, "99.01", b.tray.Version("FW_BMC_0"))
	require.Contains(t, j.ResultJSON, `"firmware_file":"prod/nvfw_P4972_9.fwpkg"`)
}

// Whoever takes the job over gets the file again.
func TestArtifactsAfterACrash(t *testing.T) {
	b := newBench(t)
	s := newStore()
	close(s.ready)
	target := s.put(b, b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	with := func(o *agenttest.AgentOptions) { o.Artifacts = s }
	for _, stage := range []string{"artifacts", "upload"} {
		doomed := b.StartDoomed(redfishagent.FailInStage+stage, 1, with)
		id := b.Admit(b.node, update(target))
		b.died(doomed, id)
		second := b.Start(with)
		j := b.Await(id)
		require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
		second.Stop()
	}
	require.Len(t, b.files(), 2, "one for each job")
}

func TestArtifactsThatDoNotCome(t *testing.T) {
	t.Parallel()
	t.Run("failed", func(t *testing.T) {
		b := newBench(t)
		s := newStore()
		close(s.ready)
		s.err = errors.New("HTTP 404 from the server")
		b.Start(func(o *agenttest.AgentOptions) { o.Artifacts = s })
		j := b.run(update(s.put(b, b.raw("", "a_1.bin"))))
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureArtifactDownloadFailed, j.Failure.FailureCode)
		require.Equal(t, job.CodeClientError, j.Failure.Code)
		require.Equal(t, "planning", j.Failure.Phase)
		require.Contains(t, j.Failure.Message, "HTTP 404 from the server")
	})
	t.Run("no catalogue", func(t *testing.T) {
		b := newBench(t)
		b.Start()
		j := b.run(update(newStore().put(b, b.raw("", "a_1.bin"))))
		require.Equal(t, job.FailureAgentNotEquipped, j.Failure.FailureCode)
		require.Contains(t, j.Failure.Message, "to which this agent has no access")
	})
	t.Run("cut short since", func(t *testing.T) {
		b := newBench(t)
		s := newStore()
		close(s.ready)
		target := s.put(b, b.raw("", "a_1.bin"))
		for name, a := range s.files {
			a.Size++
			s.files[name] = a
		}
		b.Start(func(o *agenttest.AgentOptions) { o.Artifacts = s })
		j := b.run(update(target))
		require.Equal(t, job.FailureFileChanged, j.Failure.FailureCode)
		require.Empty(t, b.files())
	})
	t.Run("cancelled meanwhile", func(t *testing.T) {
		b := newBench(t)
		s := newStore()
		b.Start(func(o *agenttest.AgentOptions) { o.Artifacts = s })
		id := b.Admit(b.node, update(s.put(b, b.raw("", "a_1.bin"))))
		b.AwaitStage(id, "artifacts")
		b.Cancel(id, job.CancelGraceful)
		require.Equal(t, job.StateCancelled, b.Await(id).State)
	})
}

// The firmware that a node's profile promises is looked for before every package.
func TestExpectedInventory(t *testing.T) {
	t.Parallel()
	profiles := func(o *agenttest.AgentOptions) {
		o.Profiles = map[string]redfishagent.InventoryProfile{
			"whole": {Names: []string{"fw_bmc_0", "HGX_FW_GPU_3"}}, "larger": {Names: []string{"HGX_FW_GPU_4", "FW_BMC_0", "NIC_9"}},
			"counts": {FlintDevices: map[string]int{"cx7": 4}},
		}
	}
	for name, tt := range map[string]struct {
		code job.FailureCode
		text string
	}{
		"whole": {}, "counts": {}, "": {},
		"larger":  {job.FailureInventoryIncomplete, "not present: HGX_FW_GPU_4, NIC_9"},
		"unknown": {job.FailureInvalidArgument, `no expected inventory profile "unknown"`},
	} {
		t.Run("profile "+name, func(t *testing.T) {
			b := newBench(t)
			b.Start(profiles)
			b.node.InventoryProfile = name
			j := b.run(update(b.raw("FW_BMC_0", "obmc_7.bin")))
			if tt.code == "" {
				require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
				return
			}
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, tt.code, j.Failure.FailureCode)
			require.Contains(t, j.Failure.Message, tt.text)
			require.Empty(t, b.files())
		})
	}
}

// A board that drops out between two packages stops the update.
func TestExpectedInventoryOfEveryPackage(t *testing.T) {
	b := newBench(t, func(o *sim.Options) { o.Timing.Task = 400 * time.Millisecond })
	b.Start(func(o *agenttest.AgentOptions) {
		o.Profiles = map[string]redfishagent.InventoryProfile{"p": {Names: []string{"HGX_FW_GPU_3"}}}
	})
	b.node.InventoryProfile = "p"
	id := b.Admit(b.node, update(b.raw("FW_BMC_0", "obmc_7.bin"), b.raw("FW_CPLD_0", "cpld_8.bin")))
	b.sent()
	b.hide("HGX_FW_GPU_3")
	j := b.Await(id)
	require.Equal(t, job.StateFailed, j.State)
	require.Equal(t, "check_2", failedStage(j))
	require.Equal(t, []string{"obmc_7.bin"}, b.files())
}

func failedStage(j agenttest.Job) string {
	for _, s := range j.Stages {
		if s.Status == job.StageFailed {
			return s.Name
		}
	}
	return ""
}
