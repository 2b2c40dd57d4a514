// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// furnished is a lab with racks, jobs and a catalogue.
func furnished(t *testing.T) *lab {
	l := newLab(t)
	l.says("ListRacks", &rackmanager.ListRacksResponse{RackIds: []string{"row2", "lab"}})
	l.says("ListNodeInventory", registered())
	l.says("ListJobs", &rackbusv1.ListJobsResponse{Jobs: []*rackbusv1.Job{halfway().GetJob(), alone(), child(2, running, 45, "Polling firmware task")}})
	l.on("GetJob", func(_ context.Context, req proto.Message) (proto.Message, error) {
		switch req.(*rackbusv1.GetJobRequest).GetJobId() {
		case batchID:
			return ended(), nil
		case diagnosed().GetJobId():
			return &rackbusv1.GetJobResponse{Job: diagnosed()}, nil
		default:
			return &rackbusv1.GetJobResponse{Job: alone()}, nil
		}
	})
	l.says("GetJobEvents", &rackbusv1.GetJobEventsResponse{Events: []*rackbusv1.JobHistoryEntry{
		{Sequence: 41, At: ago(600e9), Kind: "queued", State: queued, Description: "Waiting for an agent"},
		{Sequence: 57, At: ago(540e9), Kind: "claimed", State: running, Epoch: 1, Agent: "compute-agent-1"},
		{Sequence: 99, At: ago(120e9), Kind: "finished", State: jobFailed, Epoch: 1, Agent: "compute-agent-1", Percent: 60, Failure: failure()},
	}})
	l.says("CompareFirmwareObject", comparison())
	l.says("GetFirmwareObject", &rackmanager.GetFirmwareObjectResponse{Object: object("ACME72_9.1.0", true)})
	l.says("ListFirmwareObjects", &rackmanager.ListFirmwareObjectsResponse{Objects: []*rackmanager.FirmwareObject{
		object("ACME72_9.1.0", true), object("ACME72_9.0.0", false),
	}})
	l.says("GetFirmwareObjectStatus", &rackbusv1.GetFirmwareObjectStatusResponse{
		ArtifactsAvailable: 1, BytesDone: 3 << 20, Artifacts: []*rackbusv1.ArtifactRecord{
			{Path: "prod/bmc.fwpkg", State: rackbusv1.ArtifactState_ARTIFACT_STATE_AVAILABLE, BytesDone: 2 << 20, BytesTotal: 2 << 20, Location: "https://files/bmc.fwpkg"},
			{Path: "prod/hmc.fwpkg", State: rackbusv1.ArtifactState_ARTIFACT_STATE_FAILED, BytesDone: 1 << 20, Failure: "HTTP 404"},
		},
	})
	l.says("GetFirmwareObjectHistory", &rackmanager.GetFirmwareObjectHistoryResponse{Records: []*rackmanager.FirmwareObjectHistoryRecord{
		{ObjectId: "ACME72_9.1.0", RackId: "lab", FirmwareType: "prod", HardwareType: "gb200", AppliedAt: ago(3600e9), NodeIds: []string{"tray-01", "tray-02"}},
	}})
	l.says("GetRackFirmwareInventory", &rackmanager.GetRackFirmwareInventoryResponse{
		Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS, Nodes: []*rackmanager.NodeFirmwareInventory{
			{NodeId: "tray-01", FirmwareList: []*rackmanager.FirmwareInventoryInfo{
				{Name: "FW_BMC_0", Version: "GB200Nvl-25.06-A", Updateable: true, Health: "OK", Target: "/redfish/v1/UpdateService/FirmwareInventory/FW_BMC_0"},
				{Name: "HGX_FW_CPLD_0", Version: "0.22", Updateable: true, Health: "OK"},
			}},
		},
	})
	l.says("WhoAmI", &rackbusv1.WhoAmIResponse{Identity: "spiffe://rackbus.local/alice", Role: rackbusv1.Role_ROLE_OPERATOR})
	l.says("ListAuditRecords", &rackbusv1.ListAuditRecordsResponse{Records: []*rackbusv1.AuditRecord{
		{
			At: ago(60e9), Identity: "spiffe://rackbus.local/alice", Role: rackbusv1.Role_ROLE_OPERATOR, Peer: "10.0.9.9:51514",
			Rpc: "/rack_manager.RackManager/SetPowerState", Nodes: []*rackbusv1.AuditedNode{{RackId: "lab", NodeId: "tray-01"}}, NodeCount: 1,
			Outcome: "OK", Duration: durationpb.New(1200e6), Sequence: 12,
		},
		{
			At: ago(90e9), Identity: "spiffe://rackbus.local/bob", Role: rackbusv1.Role_ROLE_VIEWER, Rpc: "/rackbus.v1.Jobs/CancelJob",
			JobId: batchID, Outcome: "PERMISSION_DENIED", Message: "needs the role operator", Sequence: 11,
		},
	}})
	return l
}

func object(id string, standard bool) *rackmanager.FirmwareObject {
	return &rackmanager.FirmwareObject{
		Id: id, HardwareType: "gb200", Available: standard, IsDefault: standard, Created: ago(86400e9), ConfigJson: `{"ProductName":"ACME72"}`,
		Metadata: &rackmanager.FirmwareObjectMetadata{DeviceComponents: []*rackmanager.FirmwareObjectDeviceComponents{{
			NodeType: rackmanager.NodeType_COMPUTE_GB200_NVIDIA, DeviceType: "Compute Node",
			Components: []*rackmanager.FirmwareObjectComponent{{
				Name: "BMC", Version: "26.11", Artifacts: []*rackmanager.FirmwareObjectArtifact{{FirmwareType: "prod", Filename: "bmc.fwpkg"}},
			}},
		}}},
	}
}

func comparison() *rackmanager.CompareFirmwareObjectResponse {
	line := func(name, installed, proposed string, s rackmanager.FirmwareComparisonStatus, reason string) *rackmanager.FirmwareManifestComponentComparison {
		return &rackmanager.FirmwareManifestComponentComparison{
			Component: name, InstalledComponent: name, InstalledVersion: installed, ProposedVersion: proposed, Status: s, Reason: reason,
		}
	}
	matched := rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MATCHED
	return &rackmanager.CompareFirmwareObjectResponse{
		ObjectId: "ACME72_9.1.0", Response: &rackmanager.NodeBatchResponse{Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS},
		Nodes: []*rackmanager.NodeFirmwareManifestComparison{
			{NodeId: "tray-01", Components: []*rackmanager.FirmwareManifestComponentComparison{
				line("BMC", "GB200Nvl-25.06-A", "GB200Nvl-26.11-1", rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MISMATCHED, "another version is installed"),
				line("HMC", "GB200Nvl-26.11-1", "GB200Nvl-26.11-1", matched, ""),
				line("CX7", "", "28.47.1026", rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_UNVERIFIED, "the BMC does not list network devices"),
			}},
			{NodeId: "tray-02", Components: []*rackmanager.FirmwareManifestComponentComparison{
				line("BMC", "GB200Nvl-26.11-1", "GB200Nvl-26.11-1", matched, ""),
				line("HMC", "GB200Nvl-26.11-1", "GB200Nvl-26.11-1", matched, ""),
				line("CPLD", "", "0.22", rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MISSING, "the inventory has no such entry"),
			}},
		},
	}
}

// Everything that is shown, in every form.
func TestShow(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	inventory := l.write("nodes.csv", []byte("rack,node,type,bmc_address,bmc_mac,bmc_user,bmc_password\nlab,tray-01,compute_gb200_nvidia,10.0.0.1,02:00:00:00:00:01,admin,pw\n"))
	for _, tt := range []struct {
		name, line string
		code       int
	}{
		{"racks", "racks", 0},
		{"nodes", "nodes list", 0},
		{"nodes-rack", "nodes list --rack lab --type switch_gb200_nvidia", 0},
		{"node", "nodes get lab/switch-01", 0},
		{"jobs", "job list", 0},
		{"job", "job get " + batchID, 0},
		{"job-alone", "job get " + alone().GetJobId(), 0},
		{"job-diagnostics", "job get " + diagnosed().GetJobId(), 0},
		{"events", "job events " + batchID, 0},
		{"objects", "firmware object list", 0},
		{"object", "firmware object get ACME72_9.1.0", 0},
		{"object-status", "firmware object status ACME72_9.1.0", 0},
		{"history", "firmware history", 0},
		{"inventory", "firmware inventory --rack lab --component bmc", 0},
		{"compare", "firmware compare --object ACME72_9.1.0 -f " + inventory, cli.ExitFailed},
		{"whoami", "whoami", 0},
		{"audit", "audit list", 0},
	} {
		for _, form := range []string{"table", "wide", "json", "yaml"} {
			got := l.run(append(strings.Fields(tt.line), "-o", form)...)
			require.Equal(t, tt.code, got.code, "%s: %s", tt.line, got.stderr)
			require.NotContains(t, got.stdout, "\x1b", "colours are for terminals")
			shown := strings.ReplaceAll(got.stdout, l.addr, "SERVER")
			switch form {
			case "json":
				require.True(t, json.Valid([]byte(shown)), tt.line)
				if tt.name != "racks" && tt.name != "whoami" {
					continue // messages gain fields; these two tell how they look
				}
			case "yaml":
				if tt.name != "racks" {
					continue
				}
			}
			golden(t, "show-"+tt.name+"."+form, shown)
		}
	}
	require.Equal(t, "ACME72_9.1.0", last[*rackmanager.GetFirmwareObjectRequest](l, "GetFirmwareObject").GetId())
	require.Equal(t, `{"ProductName":"ACME72"}`, last[*rackmanager.CompareFirmwareObjectRequest](l, "CompareFirmwareObject").GetConfigJson())
}

// On a terminal tables have colours and end at its edge.
func TestTerminalTables(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	tty := func(env *cli.Env) {
		env.Tables, env.Colours, env.Size = true, true, func() (int, int) { return 70, 24 }
	}
	got := l.runIn(tty, "job", "events", batchID)
	require.Contains(t, got.stdout, "\x1b[31mfailed\x1b[0m")
	require.Contains(t, got.stdout, "…")
	var s screen
	_, err := s.Write([]byte(got.stdout))
	require.NoError(t, err)
	for _, line := range strings.Split(s.text(), "\n") {
		require.LessOrEqual(t, len([]rune(line)), 70, line)
	}
	got = l.runIn(func(env *cli.Env) { tty(env); env.Colours = false }, "job", "events", batchID)
	require.NotContains(t, got.stdout, "\x1b")
}

func TestJobListFilters(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	got := l.run(strings.Fields("job list --rack lab --state failed,timed_out --job-type firmware_update --since 24h --name x --limit 7")...)
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	want := &rackbusv1.ListJobsRequest{PageSize: 7, Filter: &rackbusv1.JobFilter{
		RackId: "lab", Types: []string{"firmware_update"}, Name: "x", TopLevelOnly: true, CreatedSince: timestamppb.New(noon.Add(-86400e9)),
		States: []rackbusv1.JobState{jobFailed, rackbusv1.JobState_JOB_STATE_TIMED_OUT},
	}}
	require.True(t, proto.Equal(want, last[*rackbusv1.ListJobsRequest](l, "ListJobs")), "%v", last[*rackbusv1.ListJobsRequest](l, "ListJobs"))
	require.Equal(t, cli.ExitOK, l.run("job", "list", "--node", "lab/tray-01", "--active").code)
	req := last[*rackbusv1.ListJobsRequest](l, "ListJobs").GetFilter()
	require.Equal(t, []string{"lab", "tray-01"}, []string{req.GetRackId(), req.GetNodeId()})
	require.False(t, req.GetTopLevelOnly(), "jobs on a node are children mostly")
	require.Len(t, req.GetStates(), 3)

	got = l.run("job", "list", "--state", "sleeping")
	require.Equal(t, cli.ExitUsage, got.code)
	require.Contains(t, got.stderr, "timed_out")
}

func TestJobListPages(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.on("ListJobs", func(_ context.Context, req proto.Message) (proto.Message, error) {
		if req.(*rackbusv1.ListJobsRequest).GetPageToken() == "" {
			return &rackbusv1.ListJobsResponse{Jobs: []*rackbusv1.Job{alone()}, NextPageToken: "more"}, nil
		}
		return &rackbusv1.ListJobsResponse{Jobs: []*rackbusv1.Job{diagnosed()}}, nil
	})
	got := l.run("job", "list", "--limit", "0", "-o", "json")
	require.Contains(t, got.stdout, alone().GetJobId())
	require.Contains(t, got.stdout, diagnosed().GetJobId())
	got = l.run("job", "list", "--limit", "1")
	require.Contains(t, got.stdout, "There are more")
}

// What servers and devices say does nothing to a terminal.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	j := alone()
	j.Name, j.StateDescription, j.Failure.Message = "\x1b[2J", "\x07", "\x1b]0;owned\x07"
	l.says("ListJobs", &rackbusv1.ListJobsResponse{Jobs: []*rackbusv1.Job{j}})
	l.says("GetJob", &rackbusv1.GetJobResponse{Job: j})
	l.says("ListRacks", &rackmanager.ListRacksResponse{})
	for _, line := range []string{"job list", "job get x", "job watch x"} {
		got := l.run(strings.Fields(line)...)
		require.NotContains(t, got.stdout+got.stderr, "\x1b", line)
		require.NotContains(t, got.stdout+got.stderr, "\x07", line)
	}
	got := l.run("racks")
	require.Equal(t, cli.ExitUnsupported, got.code, "an inventory that is missing is no empty one")
}

func TestPowerGet(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.on("GetPowerState", func(ctx context.Context, req proto.Message) (proto.Message, error) {
		r := req.(*rackmanager.GetPowerStateRequest)
		if r.GetNodeId() == "tray-03" {
			if err := grpc.SetTrailer(ctx, metadata.Pairs("rackbus-reason", "the BMC did not answer")); err != nil {
				return nil, err
			}
			return &rackmanager.GetPowerStateResponse{Status: rackmanager.ReturnCode_RETURN_CODE_FAILURE}, nil
		}
		return &rackmanager.GetPowerStateResponse{Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS, Pstate: "ON"}, nil
	})
	got := l.run("power", "get", "--rack", "lab", "--all")
	require.Equal(t, cli.ExitFailed, got.code)
	golden(t, "power-get.table", got.stdout)
	require.Contains(t, got.stderr, "1 of 6 nodes could not be read")
	got = l.run("power", "get", "lab/tray-01", "-o", "json")
	require.Equal(t, cli.ExitOK, got.code)
	golden(t, "power-get.json", got.stdout)
	require.Equal(t, cli.ExitUsage, l.run("power", "get", "tray-01").code, "of which rack?")
	require.Equal(t, cli.ExitUsage, l.run("power", "get").code)
	require.Equal(t, cli.ExitUsage, l.run("power", "get", "--rack", "row2", "lab/tray-01").code)
	require.Equal(t, cli.ExitNotFound, l.run("power", "get", "--rack", "none", "--all").code)
}
