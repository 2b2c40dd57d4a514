// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/test/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	success = rackmanager.ReturnCode_RETURN_CODE_SUCCESS
	// patience is the limit of everything that ought to take some seconds.
	patience = time.Minute
	poll     = 20 * time.Millisecond
	// refusalPatience is the limit of an answer of a server that does nothing else.
	refusalPatience = 10 * time.Second
)

// scene is a site as it is shipped, with a rack that has one device of each family.
type scene struct {
	*cluster.Cluster
	*cluster.Client
	rack *sim.Rack
}

func start(t *testing.T, o cluster.Options) *scene {
	o.Shipped = true
	o.Racks = []sim.Options{{
		RackID: "r", Compute: 1, PowerShelves: 1, Switches: 1, Seed: 1,
		Timing: bmc.Timing{Task: 100 * time.Millisecond, BMCOutage: 100 * time.Millisecond},
	}}
	c := cluster.Start(t, o)
	for _, sw := range c.Racks[0].Switches() {
		require.NoError(t, sw.Provision("earlier", c.Domain.Earlier, "nvue"))
	}
	return &scene{Cluster: c, Client: c.Client(0), rack: c.Racks[0]}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, context.DeadlineExceeded)
	t.Cleanup(cancel)
	return ctx
}

// work does a job of each family, and asks each agent.
func (s *scene) work(t *testing.T) {
	ctx := within(t)
	out, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: s.NodeSet(s.rack)})
	require.NoError(t, err)
	require.Equal(t, success, out.GetResponse().GetStatus(), out.GetResponse().GetMessage())
	power, err := s.BatchGetPowerState(ctx, &rackmanager.BatchGetPowerStateRequest{Nodes: s.NodeSet(s.rack)})
	require.NoError(t, err)
	require.EqualValues(t, 3, power.GetResponse().GetStats().GetSuccessfulNodes(), "%v", power)

	s.WriteTrayPackage("tray.fwpkg", "9.9")
	tray, err := s.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{
		RackId: "r", NodeId: "compute-0001", Filename: "tray.fwpkg", Activate: true,
	})
	require.NoError(t, err)
	require.Equal(t, success, tray.GetStatus(), tray.GetMessage())
	jobs := []string{tray.GetJobId(), s.updateShelf(ctx, t), s.installImage(ctx, t)}
	for _, id := range jobs {
		require.NotEmpty(t, id)
		job, err := s.WaitJob(ctx, id)
		require.NoError(t, err)
		require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, job.GetExecutionState(), "%v", job)
	}
	s.requireNoRefusal(t)
}

// requireNoRefusal looks for what clients and servers log when a right is missing.
func (s *scene) requireNoRefusal(t *testing.T) {
	t.Helper()
	for _, p := range s.All() {
		log, err := os.ReadFile(p.Log().Path)
		require.NoError(t, err)
		for line := range strings.Lines(string(log)) {
			require.NotContains(t, strings.ToLower(line), "permissions violation", p.Name)
			require.NotContains(t, strings.ToLower(line), "not allowed", p.Name)
		}
	}
}

func (s *scene) updateShelf(ctx context.Context, t *testing.T) string {
	content, err := firmwarepackage.ShelfArchive("LITEON-BMC", "r1.5.7", "PF-1333-7R", []byte("controller image"))
	require.NoError(t, err)
	s.WriteFirmware("shelf-r1.5.7.tar", content)
	out, err := s.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{
		RackId: "r", NodeId: "powershelf-0001", Filename: "shelf-r1.5.7.tar", Activate: true,
	})
	require.NoError(t, err)
	require.Equal(t, success, out.GetStatus(), out.GetMessage())
	return out.GetJobId()
}

func (s *scene) installImage(ctx context.Context, t *testing.T) string {
	const version = "25.02.4440"
	name := "nvos-amd64-" + version + ".bin"
	s.WriteFirmware(name, nvswitch.ImageContent(version, 1<<20))
	out, err := s.UpdateSwitchSystemImage(ctx, &rackmanager.UpdateSwitchSystemImageRequest{
		Nodes: s.NodeSet(s.rack, "switch-0001"), ImageFilename: name, LocalFilePath: name,
	})
	require.NoError(t, err)
	require.Equal(t, success, out.GetResponse().GetStatus(), "%v", out)
	return out.GetResponse().GetJobId()
}
