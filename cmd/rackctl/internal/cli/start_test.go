// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

// admitted is the answer of a call that starts the batch.
func admitted(refused ...*rackmanager.NodeOperationResult) *rackmanager.NodeBatchResponse {
	b := &rackmanager.NodeBatchResponse{Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS, Message: "admitted", JobId: batchID, NodeResults: refused}
	if len(refused) > 0 {
		b.Status, b.Message = rackmanager.ReturnCode_RETURN_CODE_FAILURE, "1 node was refused"
	}
	return b
}

// refusal is the line of a node that got no job.
func refusal() *rackmanager.NodeOperationResult {
	return &rackmanager.NodeOperationResult{NodeId: "tray-01", Status: rackmanager.ReturnCode_RETURN_CODE_FAILURE, ErrorMessage: "node tray-01 is busy"}
}

// rackFile is an inventory with a node of each family.
func (l *lab) rackFile() string {
	return l.write("rack.csv", []byte(`rack,node,type,bmc_address,bmc_mac,bmc_user,bmc_password,host_address,host_user,host_password
lab,tray-01,compute_gb200_nvidia,10.0.0.1,02:00:00:00:00:01,admin,pw,,,
lab,tray-02,compute_gb200_wiwynn,10.0.0.2,02:00:00:00:00:02,admin,pw,,,
lab,switch-01,switch_gb200_nvidia,10.0.0.51,02:00:00:00:00:33,admin,pw,10.0.1.51,admin,nvos
lab,shelf-01,powershelf_gb200_liteon,10.0.0.81,02:00:00:00:00:51,root,pw,,,
`))
}

func TestJobFlags(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.says("ApplyStoredFirmwareObject", &rackmanager.ApplyStoredFirmwareObjectResponse{Response: admitted(), ObjectId: "ACME72_9.1.0"})
	args := []string{
		"firmware", "apply", "--object", "ACME72_9.1.0", "-f", l.rackFile(), "--component", "BMC", "--component", "compute_gb200_nvidia=HMC",
		"--name", "November BMCs", "--deadline", "90m", "--idempotency-key", "k1", "--on-busy", "queue", "--rollout", "wave=10%; confirm", "--force",
		"tray-01", "lab/tray-02",
	}
	got := l.run(args...)
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Equal(t, batchID+"\n", got.stdout, "piped, it does not wait")
	require.Contains(t, got.stderr, "rackctl job watch "+batchID)
	c := l.callsOf("ApplyStoredFirmwareObject")[0]
	for key, want := range map[string]string{
		"rackbus-job-name": "November BMCs", "rackbus-deadline": "90m", "rackbus-idempotency-key": "k1", "rackbus-on-busy": "queue",
		"rackbus-rollout": "wave=10%; confirm",
	} {
		require.Equal(t, []string{want}, c.md.Get(key), key)
	}
	req := c.req.(*rackmanager.ApplyStoredFirmwareObjectRequest)
	require.True(t, req.GetForceUpdate())
	require.Equal(t, "lab", req.GetRackId())
	require.Len(t, req.GetNodes().GetNodes(), 2)
	require.Equal(t, []string{"BMC", "HMC"}, req.GetComponentFilters()[1].GetComponents())
	require.Len(t, req.GetNodeDescriptorComponentFilters(), 1, "a type without a number")

	got = l.run(append(args, "-o", "json")...)
	require.Contains(t, got.stdout, `"object_id": "ACME72_9.1.0"`)

	// Waiting shows the job, and its end decides.
	got = l.run(append(args, "--wait")...)
	require.Equal(t, cli.ExitJob, got.code, got.stderr)
	golden(t, "show-job.table", got.stdout)
	got = l.runIn(func(env *cli.Env) { env.Redraw, env.Stderr = true, &screen{} }, args...)
	require.Equal(t, cli.ExitJob, got.code, "on a terminal it waits by itself")
	got = l.runIn(func(env *cli.Env) { env.Redraw, env.Stderr = true, &screen{} }, append(args, "--wait=false")...)
	require.Equal(t, batchID+"\n", got.stdout)
}

func TestRefusedNodes(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.says("GetJob", &rackbusv1.GetJobResponse{Job: child(1, completed, 100, "done")})
	l.says("ApplyStoredFirmwareObject", &rackmanager.ApplyStoredFirmwareObjectResponse{Response: admitted(refusal())})
	args := []string{"firmware", "apply", "--hardware", "gb200", "-f", l.rackFile()}
	got := l.run(args...)
	require.Equal(t, cli.ExitFailed, got.code, "some are admitted, some are not")
	require.Equal(t, batchID+"\n", got.stdout)
	require.Contains(t, got.stderr, "tray-01: node tray-01 is busy")
	require.Equal(t, cli.ExitFailed, l.run(append(args, "--wait")...).code)

	none := admitted(refusal())
	none.JobId = ""
	l.says("ApplyStoredFirmwareObject", &rackmanager.ApplyStoredFirmwareObjectResponse{Response: none})
	got = l.run(args...)
	require.Equal(t, cli.ExitFailed, got.code)
	require.Empty(t, got.stdout)
}

func TestApplyDryRunAndManifest(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	got := l.run("firmware", "apply", "--hardware", "gb200", "-f", l.rackFile(), "--dry-run")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "mismatched")
	require.Empty(t, l.callsOf("ApplyStoredFirmwareObject"))

	l.says("ApplyFirmwareObject", &rackmanager.ApplyFirmwareObjectResponse{Response: admitted()})
	manifest := l.write("m.json", []byte(`{"a":1}`))
	got = l.runIn(with(map[string]string{"RACKCTL_ACCESS_TOKEN": "t0ken"}), "firmware", "apply", "--manifest", manifest, "--hardware", "gb200", "-f", l.rackFile())
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	req := last[*rackmanager.ApplyFirmwareObjectRequest](l, "ApplyFirmwareObject")
	require.Equal(t, []string{`{"a":1}`, "t0ken"}, []string{req.GetConfigJson(), req.GetAccessToken()})
	for _, line := range []string{"firmware apply", "firmware apply --object a --manifest b", "firmware apply --manifest b", "firmware plan apply", "firmware object add x"} {
		require.Equal(t, cli.ExitUsage, l.run(append(strings.Fields(line), "-f", l.rackFile())...).code, line)
	}
}

func TestFirmwarePlan(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	plan := &rackbusv1.FirmwarePlan{SnapshotId: "p1", ObjectId: "ACME72_9.1.0", CreatedAt: timestamppb.New(noon), Nodes: []*rackbusv1.FirmwarePlanNode{
		{RackId: "lab", NodeId: "tray-01", NodeType: "compute_gb200_nvidia", Targets: []*rackbusv1.FirmwarePlanTarget{{Key: "BMC", Version: "26.11", Path: "prod/bmc.fwpkg"}}},
		{RackId: "lab", NodeId: "shelf-01", NodeType: "powershelf_gb200_liteon", Refusal: "the manifest has nothing for it"},
	}}
	l.says("CheckFirmwarePlan", &rackbusv1.CheckFirmwarePlanResponse{Plan: plan})
	l.says("GetFirmwarePlan", &rackbusv1.GetFirmwarePlanResponse{Plan: plan})
	l.says("ApplyFirmwarePlan", &rackbusv1.ApplyFirmwarePlanResponse{Response: admitted()})
	got := l.run("firmware", "plan", "check", "--object", "ACME72_9.1.0", "-f", l.rackFile())
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	golden(t, "plan.table", got.stdout)
	require.Equal(t, got.stdout, l.run("firmware", "plan", "get", "p1").stdout)
	require.Equal(t, batchID+"\n", l.run("firmware", "plan", "apply", "--plan", "p1", "-f", l.rackFile()).stdout)
	require.Equal(t, "p1", last[*rackbusv1.ApplyFirmwarePlanRequest](l, "ApplyFirmwarePlan").GetSnapshotId())
}

func TestServedUpdates(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.says("UpdateFirmware", &rackmanager.UpdateFirmwareResponse{Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS, JobId: batchID})
	l.says("BatchUpdateFirmwareByNodeType", &rackmanager.BatchUpdateFirmwareByNodeTypeResponse{Response: admitted()})
	got := l.run("firmware", "update", "a.fwpkg", "b.bin", "--component", "HMC", "--component", "CPLD", "--node", "lab/tray-01", "--no-activate")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	want := &rackmanager.UpdateFirmwareRequest{RackId: "lab", NodeId: "tray-01", FirmwareTargets: []*rackmanager.FirmwareTarget{
		{Target: "HMC", Filename: "a.fwpkg"}, {Target: "CPLD", Filename: "b.bin"},
	}}
	require.True(t, proto.Equal(want, last[*rackmanager.UpdateFirmwareRequest](l, "UpdateFirmware")))
	got = l.run("firmware", "update", "a.fwpkg", "--rack", "lab", "--type", "COMPUTE_GB200_WIWYNN")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	req := last[*rackmanager.BatchUpdateFirmwareByNodeTypeRequest](l, "BatchUpdateFirmwareByNodeType")
	require.Equal(t, "wiwynn", req.GetNodeDescriptor().GetAttributes()["vendor"])
	require.True(t, req.GetActivate())
	l.says("UpdateFirmware", &rackmanager.UpdateFirmwareResponse{Status: rackmanager.ReturnCode_RETURN_CODE_FAILURE, Message: "node is busy"})
	got = l.run("firmware", "update", "a.fwpkg", "--node", "lab/tray-01")
	require.Equal(t, cli.ExitFailed, got.code)
	require.Contains(t, got.stderr, "node is busy")
}

func TestPowerSet(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.on("SetPowerState", func(ctx context.Context, req proto.Message) (proto.Message, error) {
		if req.(*rackmanager.SetPowerStateRequest).GetNodeId() == "tray-02" {
			err := grpc.SetTrailer(ctx, metadata.Pairs("rackbus-reason", "node tray-02 is busy"))
			return &rackmanager.SetPowerStateResponse{Status: rackmanager.ReturnCode_RETURN_CODE_FAILURE}, err
		}
		return &rackmanager.SetPowerStateResponse{Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS}, nil
	})
	l.says("GetPowerState", &rackmanager.GetPowerStateResponse{Status: rackmanager.ReturnCode_RETURN_CODE_SUCCESS, Pstate: "ON"})
	got := l.run("power", "off", "--rack", "lab", "tray-01", "tray-02", "--dry-run")
	require.Equal(t, cli.ExitOK, got.code)
	require.Contains(t, got.stdout, "ON")
	require.Equal(t, cli.ExitUsage, l.run("power", "off", "lab/tray-01", "lab/tray-02").code, "several at once are asked about")
	require.Empty(t, l.callsOf("SetPowerState"))
	got = l.run("power", "off", "--rack", "lab", "tray-01", "tray-02", "-y")
	require.Equal(t, cli.ExitFailed, got.code)
	golden(t, "power-off.table", got.stdout)
	for use, op := range map[string]rackmanager.PowerOperation{
		"on": 2, "off": 1, "cycle": 3, "force-off": 4, "force-on": 5, "shutdown": 6, "restart": 7, "force-restart": 8,
	} {
		require.Equal(t, cli.ExitOK, l.run("power", use, "lab/tray-01", "--on-busy", "force").code, use)
		require.Equal(t, op, last[*rackmanager.SetPowerStateRequest](l, "SetPowerState").GetOperation(), use)
	}
	require.Equal(t, []string{"force"}, l.callsOf("SetPowerState")[2].md.Get("rackbus-on-busy"))
}

// Every command on switches sends what was asked for, about switches only.
func TestSwitchCommands(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	ok := rackmanager.ReturnCode_RETURN_CODE_SUCCESS
	for name, m := range map[string]proto.Message{
		"UpdateSwitchSystemImage":            &rackmanager.UpdateSwitchSystemImageResponse{Response: admitted()},
		"ApplyStoredSwitchSystemImage":       &rackmanager.ApplyStoredSwitchSystemImageResponse{Response: admitted()},
		"ConfigureSwitchCertificate":         &rackmanager.ConfigureSwitchCertificateResponse{Response: admitted()},
		"BatchDisableSwitchMtls":             &rackmanager.BatchDisableSwitchMtlsResponse{Response: admitted()},
		"UpdateSwitchSystemPassword":         &rackmanager.UpdateSwitchSystemPasswordResponse{Response: admitted()},
		"BatchResetSwitchFactoryDefault":     &rackmanager.BatchResetSwitchFactoryDefaultResponse{Response: admitted()},
		"BatchResetSwitchSdnFactoryDefault":  &rackmanager.BatchResetSwitchSdnFactoryDefaultResponse{Response: admitted()},
		"ConfigureScaleUpFabricManager":      &rackmanagerv2.ConfigureScaleUpFabricManagerResponse{JobId: batchID},
		"StartSystemValidation":              &rackmanagerv2.StartSystemValidationResponse{Response: admitted()},
		"ExecuteColdReboot":                  &rackmanager.ExecuteColdRebootResponse{Response: admitted()},
		"ListSwitchSystemImages":             &rackmanager.ListSwitchSystemImagesResponse{Status: ok, ImagesJson: `[{"version":"25.02"}]`},
		"ListSwitchFirmware":                 &rackmanager.ListSwitchFirmwareResponse{Status: ok, ResultJson: `{"bmc":{}}`},
		"PushSwitchFirmware":                 &rackmanager.PushSwitchFirmwareResponse{Status: rackmanager.ReturnCode_RETURN_CODE_FAILURE, ErrorMessage: "no room"},
		"GetScaleUpFabricState":              &rackmanager.GetScaleUpFabricStateResponse{Status: ok, StateJson: `{"state":"enabled"}`},
		"BatchSetScaleUpFabricState":         &rackmanager.BatchSetScaleUpFabricStateResponse{Response: &rackmanager.NodeBatchResponse{Status: ok}},
		"BatchGetScaleUpFabricServiceStatus": &rackmanager.BatchGetScaleUpFabricServiceStatusResponse{Status: ok, ServiceStatuses: map[string]*rackmanager.ScaleUpFabricServiceStatusEntry{"switch-01": {StatusJson: "{ }"}}},
		"SetScaleUpFabricTelemetryInterfaceState": &rackmanager.SetScaleUpFabricTelemetryInterfaceStateResponse{
			Status: rackmanager.ReturnCode_RETURN_CODE_FAILURE, ErrorMessage: "not there",
		},
		"GetScaleUpFabricStatus": &rackmanager.GetScaleUpFabricStatusResponse{Status: ok, FabricStatus: &rackmanager.ScaleUpFabricStatus{
			TopologyType: "nvl72", Switches: []*rackmanager.ScaleUpFabricSwitchStatus{{NodeId: "switch-01", Enabled: true, FabricManagerStatus: "ok"}},
		}},
		"BatchCollectSwitchSpdmAttestationEvidence": &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceResponse{
			Status: ok, Results: []*rackmanager.SwitchSpdmAttestationTargetResult{{NodeId: "switch-01", Status: ok}},
		},
	} {
		l.says(name, m)
	}
	l.write("new.pw", []byte("n3w\n"))
	nonce := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		line, want string
		code       int
	}{
		{"switch image update --image /fw/nvos-25.02.1.bin", batchID, 0},
		{"switch image update", "", cli.ExitUsage},
		{"switch image apply --object ACME72_9.1.0", batchID, 0},
		{"switch certificate --service nvue-api,fabric-manager --domain d --test", batchID, 0},
		{"switch certificate --service telnet", "", cli.ExitUsage},
		{"switch certificate", "", cli.ExitUsage},
		{"switch mtls disable --service nvue-api", "", cli.ExitUsage},
		{"switch mtls disable --service nvue-api -y", batchID, 0},
		{"switch password --of-user admin --new-password-file " + l.path("new.pw"), batchID, 0},
		{"switch password --of-user admin", "", cli.ExitUsage},
		{"switch factory-reset", "", cli.ExitUsage},
		{"switch factory-reset --yes", batchID, 0},
		{"switch sdn-reset --yes", batchID, 0},
		{"switch fabric configure --topology nvl72 --set fm.cfg:K=V=1 --primary switch-01", batchID, 0},
		{"switch fabric configure --topology nvl72 --set fm.cfg", "", cli.ExitUsage},
		{"switch fabric status", "Topology: nvl72", 0},
		{"switch fabric services", "{}", 0},
		{"switch fabric state", `{"state":"enabled"}`, 0},
		{"switch fabric enable", "", 0},
		{"switch fabric disable", "", 0},
		{"switch fabric telemetry on", "not there", cli.ExitFailed},
		{"switch attest --nonce " + nonce, "switch-01", 0},
		{"switch attest --nonce abcd", "", cli.ExitUsage},
		{"validate tray-01", batchID, 0},
		{"reboot", "", cli.ExitUsage},
		{"reboot -y --discharge-wait 90s", batchID, 0},
	} {
		got := l.run(append(strings.Fields(tt.line), "-f", l.rackFile())...)
		require.Equal(t, tt.code, got.code, "%s: %s", tt.line, got.stderr)
		require.Contains(t, got.stdout, tt.want, tt.line)
	}
	for _, tt := range []struct {
		line, want string
		code       int
	}{
		{"switch image list lab/switch-01", "- version: \"25.02\"\n", 0},
		{"switch firmware list lab/switch-01 --component bmc -o json", "\"bmc\"", 0},
		{"switch firmware list lab/switch-01 --component x", "", cli.ExitUsage},
		{"switch firmware push lab/switch-01 --component cpld --image /fw/a.vme", "", cli.ExitFailed},
		{"switch factory-reset", "", cli.ExitUsage},
	} {
		got := l.run(strings.Fields(tt.line)...)
		require.Equal(t, tt.code, got.code, "%s: %s", tt.line, got.stderr)
		require.Contains(t, got.stdout, tt.want, tt.line)
	}
	image := last[*rackmanager.UpdateSwitchSystemImageRequest](l, "UpdateSwitchSystemImage")
	require.Equal(t, "nvos-25.02.1.bin", image.GetImageFilename())
	require.Len(t, image.GetNodes().GetNodes(), 1, "switches only")
	require.Equal(t, "nvos", image.GetNodes().GetNodes()[0].GetHostEndpoint().GetCredentials().GetUserPass().GetPassword())
	require.Equal(t, "n3w", last[*rackmanager.UpdateSwitchSystemPasswordRequest](l, "UpdateSwitchSystemPassword").GetPassword())
	require.Equal(t, "d", last[*rackmanager.ConfigureSwitchCertificateRequest](l, "ConfigureSwitchCertificate").GetDomain())
	require.Equal(t, "V=1", last[*rackmanagerv2.ConfigureScaleUpFabricManagerRequest](l, "ConfigureScaleUpFabricManager").GetConfig().GetExtraStaticConfigs()[0].GetValue())
	require.EqualValues(t, 90, last[*rackmanager.ExecuteColdRebootRequest](l, "ExecuteColdReboot").GetDischargeFloorSeconds())
	require.Len(t, last[*rackmanager.ExecuteColdRebootRequest](l, "ExecuteColdReboot").GetNodes().GetNodes(), 4)
}

// Registered nodes can be used with a login that is given on the spot.
func TestRegisteredNodesWithLogin(t *testing.T) {
	t.Parallel()
	l := furnished(t)
	l.says("ExecuteColdReboot", &rackmanager.ExecuteColdRebootResponse{Response: admitted()})
	got := l.runIn(with(map[string]string{"RACKCTL_BMC_PASSWORD": "b", "RACKCTL_HOST_PASSWORD": "h"}),
		"reboot", "--rack", "lab", "--user", "admin", "--host-user", "cumulus", "-y")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	nodes := last[*rackmanager.ExecuteColdRebootRequest](l, "ExecuteColdReboot").GetNodes().GetNodes()
	require.Len(t, nodes, 6)
	require.Equal(t, "switch-01", nodes[1].GetNodeId())
	require.Equal(t, "10.0.1.51", nodes[1].GetHostEndpoint().GetInterface().GetIpAddress())
	require.Equal(t, "cumulus", nodes[1].GetHostEndpoint().GetCredentials().GetUserPass().GetUsername())
	require.Equal(t, "b", nodes[0].GetBmcEndpoint().GetCredentials().GetUserPass().GetPassword())
	require.Equal(t, cli.ExitNotFound, l.run("reboot", "--rack", "nowhere", "-y").code)
	require.Equal(t, cli.ExitUsage, l.run("reboot", "-y").code)
}

func TestSteering(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	stopping := child(2, rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED, 45, "Writing the image; at most 10 min more")
	l.says("CancelJob", &rackbusv1.CancelJobResponse{Job: stopping})
	l.says("PauseRollout", &rackbusv1.PauseRolloutResponse{Job: halfway().GetJob()})
	l.says("ResumeRollout", &rackbusv1.ResumeRolloutResponse{Job: halfway().GetJob()})
	l.says("AbortRollout", &rackbusv1.AbortRolloutResponse{Job: halfway().GetJob()})
	got := l.run("job", "cancel", "j", "--reason", "wrong image")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Contains(t, got.stdout, "cancellation requested")
	require.Equal(t, "wrong image", last[*rackbusv1.CancelJobRequest](l, "CancelJob").GetReason())
	require.Equal(t, cli.ExitUsage, l.run("job", "cancel", "j", "--terminate").code, "nobody can be asked")
	require.Equal(t, cli.ExitOK, l.run("job", "cancel", "j", "--terminate", "-y").code)
	require.Equal(t, rackbusv1.CancelMode_CANCEL_MODE_TERMINATE, last[*rackbusv1.CancelJobRequest](l, "CancelJob").GetMode())
	for state, code := range map[rackbusv1.JobState]int{rackbusv1.JobState_JOB_STATE_CANCELLED: cli.ExitOK, completed: cli.ExitJob} {
		l.says("GetJob", &rackbusv1.GetJobResponse{Job: child(2, state, 0, "x")})
		require.Equal(t, code, l.run("job", "cancel", "j", "--wait").code, state)
	}
	waving := halfway()
	waving.Job.Rollout = &rackbusv1.Rollout{Wave: 3}
	l.says("GetJob", waving)
	for _, verb := range []string{"pause", "resume", "abort"} {
		got := l.run("job", verb, batchID)
		require.Equal(t, cli.ExitOK, got.code, verb)
		require.Contains(t, got.stdout, batchID)
	}
	resumed := last[*rackbusv1.ResumeRolloutRequest](l, "ResumeRollout")
	require.EqualValues(t, 3, resumed.GetExpectedWave(), "it confirms the wave after the one it has read of, and no other")
}

func TestDiagnosticsAndEvidence(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	bundle := []byte("bundle of " + t.Name())
	digest := sha256.Sum256(bundle)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/escape" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 500 \x1b[2J\r\nContent-Length: 0\r\n\r\n")
				_ = conn.Close()
			}
			return
		}
		if r.URL.Query().Get("sig") != "good" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write(bundle)
	}))
	pair, err := tls.LoadX509KeyPair(l.path("server.crt"), l.path("server.key"))
	require.NoError(t, err)
	site.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	site.StartTLS()
	defer site.Close()
	evidence := &rackbusv1.GetEvidenceResponse{
		Status: rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE, Url: site.URL + "/evidence/x?sig=good", Filename: "../bundle.tar.gz",
		SizeBytes: int64(len(bundle)), Sha256: digest[:], ExpiresAt: timestamppb.New(noon.Add(time.Hour)),
	}
	l.says("GetEvidence", evidence)
	out := l.path("b.tar.gz")
	got := l.run("job", "evidence", "d", "-O", out)
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.Equal(t, out+"\n", got.stdout)
	written, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Equal(t, bundle, written)
	require.Equal(t, cli.ExitFailed, l.run("job", "evidence", "d", "-O", out).code, "it is not replaced")
	require.Equal(t, cli.ExitOK, l.run("job", "evidence", "d", "-O", out, "--overwrite").code)
	require.Equal(t, string(bundle), l.run("job", "evidence", "d", "-O", "-").stdout)
	require.Equal(t, evidence.Url+"\n", l.run("job", "evidence", "d", "--link").stdout)

	for told, kept := range map[string]string{
		"\x1b]0;x\a.tar.gz": "0-x-.tar.gz", "../../.bashrc": "bashrc", "..": "evidence.tar.gz", "b\u202egz": "b-gz",
	} {
		evidence := proto.Clone(evidence).(*rackbusv1.GetEvidenceResponse)
		evidence.Filename = told
		l.says("GetEvidence", evidence)
		folder := t.TempDir()
		got := l.run("job", "evidence", "d", "-O", folder)
		require.Equal(t, cli.ExitOK, got.code, got.stderr)
		require.Equal(t, filepath.Join(folder, kept)+"\n", got.stdout)
		require.NotContains(t, got.stdout, "\x1b")
	}
	l.says("GetEvidence", evidence)

	parent := batch(completed, "done", child(1, completed, 100, "done"))
	l.says("StartNodeDiagnostics", &rackbusv1.StartNodeDiagnosticsResponse{JobId: batchID})
	l.says("GetJob", &rackbusv1.GetJobResponse{Job: parent, Children: []*rackbusv1.Job{child(1, completed, 100, "done")}})
	got = l.run("diag", "lab/tray-01", "--job", "failed-job", "--download", l.path("evidence"))
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	require.FileExists(t, l.path("evidence/lab-tray-01-bundle.tar.gz"))
	req := last[*rackbusv1.StartNodeDiagnosticsRequest](l, "StartNodeDiagnostics")
	require.Equal(t, "failed-job", req.GetAboutJobId())
	require.Equal(t, "tray-01", req.GetNodes()[0].GetNodeId())
	require.Equal(t, cli.ExitUsage, l.run("diag").code)

	for _, tt := range []struct {
		change func(*rackbusv1.GetEvidenceResponse)
		code   int
		says   string
	}{
		{func(e *rackbusv1.GetEvidenceResponse) { e.Sha256 = make([]byte, 32) }, cli.ExitFailed, "digest"},
		{func(e *rackbusv1.GetEvidenceResponse) { e.SizeBytes-- }, cli.ExitFailed, "in place of"},
		{func(e *rackbusv1.GetEvidenceResponse) { e.Url = site.URL + "/evidence/x?sig=s3cret" }, cli.ExitFailed, "403"},
		{func(e *rackbusv1.GetEvidenceResponse) { e.Url = site.URL + "/escape" }, cli.ExitFailed, "500"},
		{func(e *rackbusv1.GetEvidenceResponse) { e.Url = "https://127.0.0.1:1/x?sig=s3cret" }, cli.ExitUnreachable, "127.0.0.1:1"},
		{func(e *rackbusv1.GetEvidenceResponse) {
			e.Status, e.Reason = rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, "not written yet"
		}, cli.ExitNotFound, "not written yet"},
	} {
		e := proto.Clone(evidence).(*rackbusv1.GetEvidenceResponse)
		tt.change(e)
		l.says("GetEvidence", e)
		got := l.run("job", "evidence", "d", "-O", l.path("other"))
		require.Equal(t, tt.code, got.code, got.stderr)
		require.Contains(t, got.stderr, tt.says)
		require.NotContains(t, got.stderr, "s3cret", "a link is a secret for a while")
		require.NotContains(t, got.stderr, "\x1b")
		require.NoFileExists(t, l.path("other"))
	}
}
