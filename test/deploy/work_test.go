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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
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
	patience = 2 * time.Minute
	poll     = 20 * time.Millisecond
	// refusalPatience is the limit of an answer of a server that does nothing else.
	refusalPatience = 30 * time.Second
)

// scene is a site as it is shipped, with a rack that has devices of each family.
type scene struct {
	*cluster.Cluster
	*cluster.Client
	rack *sim.Rack
}

func start(t *testing.T, o cluster.Options) *scene {
	o.Shipped = true
	o.Settings = map[string]string{"diagnostics.automatic": "true"}
	o.Racks = []sim.Options{{
		RackID: "r", Compute: 2, PowerShelves: 1, Switches: 1, Seed: 1,
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
	require.EqualValues(t, 4, power.GetResponse().GetStats().GetSuccessfulNodes(), "%v", power)

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
	s.diagnose(ctx, t)
	s.requireNoRefusal(t)
}

// diagnose: the agent leaves evidence, the API gives it out, and keeps who asked for it.
func (s *scene) diagnose(ctx context.Context, t *testing.T) {
	started, err := s.Jobs.StartNodeDiagnostics(ctx, &rackbusv1.StartNodeDiagnosticsRequest{
		Nodes: []*rackbusv1.DiagnosedNode{{RackId: "r", NodeId: "compute-0001"}},
	})
	require.NoError(t, err)
	_, err = s.WaitJob(ctx, started.GetJobId())
	require.NoError(t, err)
	job, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: started.GetJobId(), IncludeChildren: true})
	require.NoError(t, err)
	require.Len(t, job.GetChildren(), 1)
	evidence, err := s.Jobs.GetEvidence(ctx, &rackbusv1.GetEvidenceRequest{JobId: job.GetChildren()[0].GetJobId()})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE, evidence.GetStatus(), "%v of %v", evidence, job)

	_, err = rackbusv1.NewAccessClient(s.Conn).ListAuditRecords(ctx, &rackbusv1.ListAuditRecordsRequest{})
	require.Equal(t, codes.PermissionDenied, status.Code(err), "an operator is no admin: %v", err)
	audit, err := rackbusv1.NewAccessClient(s.ClientAs("admin", 0).Conn).ListAuditRecords(ctx, &rackbusv1.ListAuditRecordsRequest{
		Rpc: "StartNodeDiagnostics",
	})
	require.NoError(t, err)
	require.Len(t, audit.GetRecords(), 1)
	require.Equal(t, "spiffe://rackbus/operator", audit.GetRecords()[0].GetIdentity())

	_, err = rackbusv1.NewAccessClient(s.ClientAs("compute-agent", 0).Conn).WhoAmI(ctx, &rackbusv1.WhoAmIRequest{})
	if err == nil {
		_, err = s.ClientAs("compute-agent", 0).Jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{})
	}
	require.Equal(t, codes.PermissionDenied, status.Code(err), "an agent's certificate is of the same authority: %v", err)
}

// requireNoRefusal looks for what clients and servers log when a right is missing.
func (s *scene) requireNoRefusal(t *testing.T) {
	t.Helper()
	for _, p := range s.All() {
		log, err := os.ReadFile(p.Log().Path)
		require.NoError(t, err)
		for line := range strings.Lines(string(log)) {
			require.NotContains(t, strings.ToLower(line), "violation", p.Name)
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
