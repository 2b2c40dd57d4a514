// SPDX-License-Identifier: Apache-2.0

package secrets_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/test/cluster"
	"github.com/rackbus/rackbus/test/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	rackID = "vault"
	user   = "admin"
	// marker is a node id: where it cannot be found, the test has not looked.
	marker = "compute-0001"
)

// vault is a cluster with planted secrets.
type vault struct {
	*cluster.Cluster
	*cluster.Client
	t    *testing.T
	rack *sim.Rack
	tape *secrets.Tape
	trap *secrets.Trap

	right, wrong, renewed, token, bearer, key string
}

func TestNoSecretLeaks(t *testing.T) {
	v := &vault{t: t, tape: &secrets.Tape{}, trap: &secrets.Trap{}}
	v.right = v.trap.Plant("password", user, `R1ght&p/ss+w=rd "planted"`)
	v.wrong = v.trap.Plant("wrong password", user, `Wr0ng&p/ss+w=rd "planted"`)
	v.renewed = v.trap.Plant("new password", user, `Ren3wed&p/ss+w=rd <planted>`)
	v.token = v.trap.Plant("session token", user, "t0ken-planted-0123456789abcdef")
	v.bearer = v.trap.Plant("bearer token", user, "b3arer-planted-0123456789abcdef")
	v.key = v.trap.Plant("idempotency key", user, "k3y-planted-0123456789abcdef")
	v.Cluster = cluster.Start(t, cluster.Options{
		PlainStore: true, Settings: map[string]string{"logging.log_level": `"trace"`},
		Racks: []sim.Options{{
			RackID: rackID, Compute: 4, PowerShelves: 1, Username: user, Password: v.right,
			Timing: bmc.Timing{Task: 200 * time.Millisecond, BMCOutage: 100 * time.Millisecond},
		}},
	})
	v.rack = v.Racks[0]
	v.Client = v.Cluster.Client(0, grpc.WithChainUnaryInterceptor(v.tape.Unary))
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+v.bearer)
	v.register(ctx)
	v.reads(ctx)
	v.updates(ctx)
	v.jobs(ctx)
	v.search(ctx)
	require.Empty(t, v.trap.Found)
}

// set is some nodes with a password of the test's choice.
func (v *vault) set(password string, ids ...string) *rackmanager.NodeSet {
	set := v.NodeSet(v.rack, ids...)
	for _, n := range set.GetNodes() {
		n.BmcEndpoint.Credentials.GetUserPass().Password = password
	}
	return set
}

func (v *vault) register(ctx context.Context) {
	bad := v.set(v.right, "compute-0003")
	bad.Nodes[0].BmcEndpoint.Credentials = &rackmanager.Credentials{Auth: &rackmanager.Credentials_SessionToken{SessionToken: v.token}}
	out, err := v.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: bad})
	require.False(v.t, err == nil && out.GetResponse().GetStatus() == rackmanager.ReturnCode_RETURN_CODE_SUCCESS, "session tokens are refused")
	bad = v.set(v.right, "compute-0003")
	bad.Nodes[0].BmcEndpoint.Interface.IpAddress = "not an address"
	out, err = v.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: bad})
	require.False(v.t, err == nil && out.GetResponse().GetStatus() == rackmanager.ReturnCode_RETURN_CODE_SUCCESS)

	good := v.set(v.right, marker, "compute-0002", "compute-0004", "powershelf-0001")
	good.Nodes = append(good.Nodes, v.set(v.wrong, "compute-0003").Nodes...)
	out, err = v.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: good})
	require.NoError(v.t, err)
	require.Equal(v.t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, out.GetResponse().GetStatus(), out.GetResponse().GetMessage())
	_, err = v.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
	require.NoError(v.t, err)
	// The tray gets a new password, and Rackbus is told.
	v.rack.Device("compute-0002").SetAccount(user, v.renewed)
	updated, err := v.UpdateNode(ctx, &rackmanager.UpdateNodeRequest{
		RackId: rackID, NodeId: "compute-0002",
		UpdateInfo: &rackmanager.NodeUpdateInfo{BmcEndpoint: v.set(v.renewed, "compute-0002").Nodes[0].BmcEndpoint},
	})
	require.NoError(v.t, err)
	require.Equal(v.t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, updated.GetResponse().GetStatus(), updated.GetResponse().GetMessage())
	v.indiscreet()
}

// indiscreet makes a tray tell the credentials it was given in each of its errors.
func (v *vault) indiscreet() {
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"code": "Base.1.18.GeneralError",
		"message": fmt.Sprintf("Login of %s with password=%s failed, Authorization: Basic %s",
			user, v.right, basic(v.right)),
		"@Message.ExtendedInfo": []any{map[string]any{
			"MessageId": "Base.1.18.InsufficientPrivilege", "MessageSeverity": "Critical",
			"Message":    fmt.Sprintf("The account %s with the password %s may not do that.", user, v.right),
			"Resolution": fmt.Sprintf("Do not use %s, see https://%s:%s@bmc/", v.right, user, v.right),
		}},
	}})
	require.NoError(v.t, err)
	_, err = v.rack.AddFault(faults.Rule{
		Device: "compute-0004", Selector: faults.Request(http.MethodPost, "/redfish/v1/**"),
		Action: faults.Action{Status: &faults.Status{Code: http.StatusForbidden, Body: body}},
	})
	require.NoError(v.t, err)
}

// basic is the credentials of HTTP Basic authentication.
func basic(password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Basic ")
}

func (v *vault) reads(ctx context.Context) {
	for _, d := range v.rack.Devices() {
		// How they end is not the question here; the node with the wrong password cannot be read.
		for _, ask := range []func() error{
			func() error {
				_, err := v.GetPowerState(ctx, &rackmanager.GetPowerStateRequest{RackId: rackID, NodeId: d.ID()})
				return err
			},
			func() error {
				_, err := v.GetNodeFirmwareInventory(ctx, &rackmanager.GetNodeFirmwareInventoryRequest{RackId: rackID, NodeId: d.ID()})
				return err
			},
			func() error {
				_, err := v.GetNodeDeviceInfo(ctx, &rackmanager.GetNodeDeviceInfoRequest{RackId: rackID, NodeId: d.ID()})
				return err
			},
			func() error {
				_, err := v.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{
					RackId: rackID, NodeId: d.ID(), Operation: rackmanager.PowerOperation_POWER_OPERATION_ON,
				})
				return err
			},
		} {
			_ = ask()
		}
	}
	right, err := v.GetPowerState(ctx, &rackmanager.GetPowerStateRequest{RackId: rackID, NodeId: "compute-0002"})
	require.NoError(v.t, err)
	require.Equal(v.t, "ON", right.GetPstate(), "the new password is in use")
	_, err = v.BatchSetPowerState(ctx, &rackmanager.BatchSetPowerStateRequest{
		Nodes:     v.set(v.wrong, marker, "compute-0002"),
		Operation: rackmanager.PowerOperation_POWER_OPERATION_ON,
	})
	require.NoError(v.t, err)
	_, err = v.BatchGetPowerState(ctx, &rackmanager.BatchGetPowerStateRequest{Nodes: v.set(v.right)})
	require.NoError(v.t, err)
	// No node of it is a switch, so only the audit remembers it.
	_, err = v.UpdateSwitchSystemPassword(ctx, &rackmanager.UpdateSwitchSystemPasswordRequest{
		Nodes: v.set(v.right, marker), Username: user, Password: v.renewed,
	})
	require.NoError(v.t, err)
}

// updates run well, against the wrong password, against the indiscreet tray, and on a device that refuses its image.
func (v *vault) updates(ctx context.Context) {
	v.WriteTrayPackage("vault.fwpkg", "4.0.0")
	v.rack.Device("compute-0002").UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = &bmc.TaskEnd{} })
	var ids []string
	for _, id := range []string{"compute-0002", "compute-0003", "compute-0004"} {
		out, err := v.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{RackId: rackID, NodeId: id, Filename: "vault.fwpkg", Activate: true})
		require.NoError(v.t, err)
		require.NotEmpty(v.t, out.GetJobId(), out.GetMessage())
		ids = append(ids, out.GetJobId())
	}
	for _, id := range ids {
		s, err := v.WaitJob(ctx, id)
		require.NoError(v.t, err)
		require.Equal(v.t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, s.GetExecutionState(), "%v", s)
		if s.GetNodeId() == "compute-0004" {
			require.Contains(v.t, s.GetErrorMessage(), "may not do that", "the device's words are told, without the secrets in them")
		}
		_, err = v.GetFirmwareJobStatus(ctx, &rackmanager.GetFirmwareJobStatusRequest{JobId: id})
		require.NoError(v.t, err)
	}
	keyed := metadata.AppendToOutgoingContext(ctx, "rackbus-idempotency-key", v.key)
	batch, err := v.BatchUpdateFirmware(keyed, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: v.set(v.right, marker, "powershelf-0001"), Activate: true,
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			int32(rackmanager.NodeType_COMPUTE_GB200_NVIDIA):    {Targets: []*rackmanager.FirmwareTarget{{Filename: "vault.fwpkg"}}},
			int32(rackmanager.NodeType_POWERSHELF_GB200_LITEON): {Targets: []*rackmanager.FirmwareTarget{{Filename: "vault.fwpkg"}}},
		},
	})
	require.NoError(v.t, err)
	_, err = v.WaitJob(ctx, batch.GetResponse().GetJobId())
	require.NoError(v.t, err)
	require.Equal(v.t, "4.0.0", v.rack.Device(marker).Version(cluster.TrayComponent))
}

func (v *vault) jobs(ctx context.Context) {
	list, err := v.Jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{})
	require.NoError(v.t, err)
	require.NotEmpty(v.t, list.GetJobs())
	for _, j := range list.GetJobs() {
		_, err := v.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: j.GetJobId(), IncludeChildren: true})
		require.NoError(v.t, err)
		_, err = v.Jobs.GetJobEvents(ctx, &rackbusv1.GetJobEventsRequest{JobId: j.GetJobId()})
		require.NoError(v.t, err)
	}
}

// search looks into everything that outlives a call.
func (v *vault) search(ctx context.Context) {
	places, err := secrets.Places(ctx, v.Cluster)
	require.NoError(v.t, err)
	places["answers of the API"] = v.tape.Bytes()
	size := 0
	for place, content := range places {
		require.NotEmpty(v.t, content, place)
		v.trap.Look(place, content)
		size += len(content)
	}
	for _, place := range []string{"answers of the API", "log of api-1", "log of jobs-1", "log of compute-agent-1", "streams", "store"} {
		require.Contains(v.t, string(places[place]), marker, "nothing was found in %s", place)
	}
	for _, rpc := range []string{"CreateNodes", "UpdateNode", "BatchSetPowerState", "UpdateFirmware", "UpdateSwitchSystemPassword"} {
		require.Contains(v.t, string(places["streams"]), "rb.audit.v1.rack_manager.RackManager."+rpc, "the audit was searched")
	}
	v.t.Logf("%d forms of secrets looked for in %d bytes at %d places: found %d", v.trap.Forms(), size, len(places), len(v.trap.Found))
}
