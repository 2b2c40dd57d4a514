// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/secrets"
)

// fabricStatus: the calls about the fabric tell what the switches show, and change nothing.
func (f *fabric) fabricStatus(t *testing.T) {
	ctx := within(t)
	writes := f.since(func() {
		out, err := f.GetScaleUpFabricStatus(ctx, &rackmanager.GetScaleUpFabricStatusRequest{Nodes: f.switches()})
		require.NoError(t, err)
		require.Equal(t, success, out.GetStatus(), out.GetErrorMessage())
		status := out.GetFabricStatus()
		require.Equal(t, topology, status.GetTopologyType())
		require.Len(t, status.GetSwitches(), fabricSwitches)
		for _, s := range status.GetSwitches() {
			require.Empty(t, s.GetErrorMessage(), s.GetNodeId())
			require.Equal(t, s.GetNodeId() == primary, s.GetEnabled(), s.GetNodeId())
		}
		extras := map[string]string{}
		for _, e := range status.GetExtraStaticConfigs() {
			extras[e.GetConfigFileName()+"/"+e.GetKey()] = e.GetValue()
		}
		require.Equal(t, "4", extras["sm_config/MAX_OP_VLS"])
		require.NotContains(t, extras, "fm_config/MNNVL_TOPOLOGY")

		service, err := f.BatchGetScaleUpFabricServiceStatus(ctx, &rackmanager.BatchGetScaleUpFabricServiceStatusRequest{Nodes: f.switches()})
		require.NoError(t, err)
		require.Equal(t, success, service.GetStatus())
		require.Len(t, service.GetServiceStatuses(), fabricSwitches)
		require.Equal(t, "green", result(t, service.GetServiceStatuses()[primary].GetStatusJson())["health_status"])

		for _, n := range f.switches().GetNodes() {
			state, err := f.GetScaleUpFabricState(ctx, &rackmanager.GetScaleUpFabricStateRequest{Node: n})
			require.NoError(t, err)
			require.Equal(t, success, state.GetStatus(), state.GetErrorMessage())
			require.Equal(t, n.GetNodeId() == primary, result(t, state.GetStateJson())["cluster_healthy"], n.GetNodeId())
		}
	})
	require.Empty(t, writes)
}

// switchStatus: the calls about registered switches find the new password in the inventory.
func (f *fabric) switchStatus(t *testing.T) {
	ctx := within(t)
	rack := f.rack.ID()
	writes := f.since(func() {
		for _, s := range f.rack.Switches() {
			images, err := f.ListSwitchSystemImages(ctx, &rackmanager.ListSwitchSystemImagesRequest{RackId: rack, NodeId: s.ID()})
			require.NoError(t, err)
			require.Equal(t, success, images.GetStatus(), images.GetErrorMessage())
			require.True(t, json.Valid([]byte(images.GetImagesJson())))
			firmware, err := f.ListSwitchFirmware(ctx, &rackmanager.ListSwitchFirmwareRequest{
				RackId: rack, NodeId: s.ID(), ComponentType: rackmanager.SwitchFirmwareComponentType_SWITCH_FIRMWARE_COMPONENT_TYPE_BMC,
			})
			require.NoError(t, err)
			require.Equal(t, success, firmware.GetStatus(), firmware.GetErrorMessage())
			require.Equal(t, s.Version("BMC"), result(t, firmware.GetResultJson())["actual-firmware"])
		}
		power, err := f.BatchGetPowerState(ctx, &rackmanager.BatchGetPowerStateRequest{Nodes: f.switches()})
		require.NoError(t, err)
		requireBatch(t, power.GetResponse(), fabricSwitches)
		for _, n := range power.GetNodePowerStates() {
			require.Equal(t, "ON", n.GetPstate())
		}
		info, err := f.BatchGetNodeDeviceInfo(ctx, &rackmanager.BatchGetNodeDeviceInfoRequest{Nodes: f.switches()})
		require.NoError(t, err)
		require.Equal(t, success, info.GetStatus(), info.GetMessage())
		require.Len(t, info.GetNodeDeviceDetails(), fabricSwitches)
		inventory, err := f.GetRackFirmwareInventory(ctx, &rackmanager.GetRackFirmwareInventoryRequest{RackId: rack})
		require.NoError(t, err)
		require.Equal(t, success, inventory.GetStatus())
		require.Len(t, inventory.GetNodes(), fabricSwitches)
		for _, n := range inventory.GetNodes() {
			listed := map[string]string{}
			for _, f := range n.GetFirmwareList() {
				listed[f.GetName()] = f.GetVersion()
			}
			require.Equal(t, "nvos-"+newestVersion, listed["NVOS"], n.GetNodeId())
			require.Equal(t, f.rack.Switch(n.GetNodeId()).Version("BMC"), listed["BMC"], n.GetNodeId())
		}
	})
	require.Empty(t, writes)
}

// attest: the evidence is fresh, as it is about the nonce.
func (f *fabric) attest(t *testing.T) {
	out, err := f.BatchCollectSwitchSpdmAttestationEvidence(within(t), &rackmanager.BatchCollectSwitchSpdmAttestationEvidenceRequest{
		Targets: f.switches().GetNodes(), Nonce: f.nonce,
	})
	require.NoError(t, err)
	require.Equal(t, success, out.GetStatus(), "%v", out)
	require.Len(t, out.GetResults(), fabricSwitches)
	for _, target := range out.GetResults() {
		require.NotEmpty(t, target.GetComponents(), target.GetNodeId())
		for _, c := range target.GetComponents() {
			want := nvswitch.Measurements(c.GetComponentId(), hex.EncodeToString(f.nonce))
			require.Equal(t, want, result(t, string(c.GetEvidence().GetMeasurements()))["signed-measurements"])
		}
	}
}

// slowStatus: nine switches are read in the time of the slowest. The best of a few attempts counts, as the machine may be
// busy with other tests for a moment; switches read one after another would never be that quick.
func (f *fabric) slowStatus(t *testing.T) {
	const (
		slowest  = "switch-0005"
		attempts = 5
	)
	for _, s := range f.rack.Switches() {
		delay := 200 * time.Millisecond
		if s.ID() == slowest {
			delay = 800 * time.Millisecond
		}
		_, err := f.rack.AddFault(faults.Rule{
			Device: s.ID(), Selector: faults.Selector{Path: "/nvue_v1/**"}, Action: faults.Action{Latency: &faults.Latency{Mean: delay}},
		})
		require.NoError(t, err)
	}
	defer f.rack.ClearFaults()
	read := func(ids ...string) time.Duration {
		start := time.Now()
		out, err := f.GetScaleUpFabricStatus(within(t), &rackmanager.GetScaleUpFabricStatusRequest{Nodes: f.switches(ids...)})
		took := time.Since(start)
		require.NoError(t, err)
		require.Equal(t, success, out.GetStatus(), out.GetErrorMessage())
		return took
	}
	alone := read(slowest)
	require.Greater(t, alone, 800*time.Millisecond)
	var all time.Duration
	for range attempts {
		all = read()
		t.Logf("the slowest switch alone: %s, all of them: %s (%.2f)", alone, all, all.Seconds()/alone.Seconds())
		if all < alone+alone/5 {
			return
		}
	}
	require.Less(t, all, alone+alone/5)
}

// resetSDN: the controller forgets its topology; a switch without a fabric refuses.
func (f *fabric) resetSDN(t *testing.T) {
	ctx := withinRack(t)
	out, err := f.BatchResetSwitchSdnFactoryDefault(ctx, &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: f.switches(primary)})
	require.NoError(t, err)
	require.Equal(t, success, out.GetResponse().GetStatus(), "%v", out)
	f.finished(ctx, t, out.GetResponse().GetJobId())
	require.Empty(t, f.rack.Switch(primary).StaticConfig("fm_config", "MNNVL_TOPOLOGY"))

	out, err = f.BatchResetSwitchSdnFactoryDefault(ctx, &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: f.switches("switch-0002")})
	require.NoError(t, err)
	s, err := f.WaitJob(ctx, out.GetResponse().GetJobId())
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, s.GetExecutionState(), "%v", s)
	children, err := f.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: s.GetJobId(), IncludeChildJobStates: true})
	require.NoError(t, err)
	require.Contains(t, children.GetJobStates()[1].GetErrorMessage(), "cluster is not enabled")
}

// noSecretLeaks: what went through Rackbus is in nothing that it keeps or says, in no command line, and on no disk of
// a switch.
func (f *fabric) noSecretLeaks(t *testing.T) {
	places, err := secrets.Places(within(t), f.Cluster)
	require.NoError(t, err)
	places["answers of the API"] = f.tape.Bytes()
	for _, s := range f.rack.Switches() {
		log, err := json.Marshal(s.Requests(reqlog.Filter{}))
		require.NoError(t, err)
		places["requests to "+s.ID()] = log
		for _, name := range s.Files("/") {
			content, err := s.ReadFile(name)
			require.NoError(t, err)
			places[name+" of "+s.ID()] = append([]byte(name), content...)
		}
	}
	for place, marker := range map[string]string{
		"answers of the API": primary, "log of api-1": "UpdateSwitchSystemPassword", "log of jobs-1": primary, "log of switch-agent-1": primary,
		"streams": primary, "store": primary, "requests to " + primary: primary,
	} {
		require.Contains(t, string(places[place]), marker, "nothing was found in %s", place)
	}
	commands := f.rack.Switch(primary).Requests(reqlog.Filter{Protocol: reqlog.SSH, Method: "EXEC"})
	require.NotEmpty(t, commands, "command lines were looked through")
	for place, content := range places {
		f.trap.Look(place, content)
	}
	require.Empty(t, f.trap.Found)
}
