// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
	"github.com/rackbus/rackbus/sim/reqlog"
)

const topology = "gb200_nvl36r1_c2g4_topology"

// Every type of job on switches has a handler, and every operation an answer.
func TestEveryOperationIsThere(t *testing.T) {
	b := newBench(t)
	opts := b.options()
	opts.Seals = b.seals()
	switches, err := switchagent.New(opts)
	require.NoError(t, err)
	defer switches.Close()
	handlers := switches.Handlers()
	for _, info := range job.Types() {
		if strings.HasPrefix(string(info.Type), "switch_") || slices.Contains([]job.Type{
			job.TypeConfigureScaleUpFabricManager2, job.TypeFirmwareUpdate, job.TypeNodeDiagnostics,
		}, info.Type) {
			require.Contains(t, handlers, info.Type)
		} else {
			require.NotContains(t, handlers, info.Type)
		}
	}
	for _, op := range []string{
		"power_get", "power_set", "device_info", "firmware_inventory", "nvos_hello", "list_switch_firmware", "list_switch_images",
		"push_switch_firmware", "fabric_configure", "fabric_status", "fabric_state_get", "fabric_state_set", "fabric_service_status",
		"fabric_telemetry_set", "spdm_evidence",
	} {
		require.Contains(t, switches.Queries(), op)
	}
	require.Len(t, switches.Queries(), 15)
	opts.Seals = nil
	_, err = switchagent.New(opts)
	require.Error(t, err)
}

func (b *bench) seals() *seal.Opener {
	b.t.Helper()
	seeds, err := seal.LoadSeeds(b.KeyDir, b.Family)
	require.NoError(b.t, err)
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	require.NoError(b.t, err)
	return opener
}

// do runs a job of any type, with secrets where there are some.
func (b *bench) do(typ job.Type, secrets proto.Message, change func(*rackbusv1.JobCommand)) agenttest.Job {
	b.t.Helper()
	return b.Await(b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
		c.Type, c.Operation = string(typ), nil
		change(c)
		if secrets == nil {
			return
		}
		public, err := seal.LoadPublic(b.KeyDir)
		require.NoError(b.t, err)
		sealer, err := seal.NewSealer(public)
		require.NoError(b.t, err)
		session, err := sealer.NewSession(b.Family)
		require.NoError(b.t, err)
		c.Secrets, err = credentials.SealSecrets(session, c.GetJobId(), secrets)
		require.NoError(b.t, err)
	}))
}

// One switch goes through every kind of job and question, by the bus.
func TestEveryOperationWorks(t *testing.T) {
	b := newBench(t)
	m := newMaterial(t, b)
	b.start(nil, func(o *switchagent.Options) { o.Device.TLS = switchtls.NewStore(m.settings) })
	completed := func(j agenttest.Job) {
		t.Helper()
		require.Equal(t, job.StateCompleted, j.State, "%s: %+v", j.Type, j.Failure)
		require.NotContains(t, j.ResultJSON, planted)
	}
	material := m.issue("switch")
	completed(b.do(job.TypeSwitchCertificate, &rackbusv1.SwitchCertificateSecrets{Ca: material.CA, Certificate: material.Certificate, Key: material.Key},
		func(c *rackbusv1.JobCommand) {
			c.Operation = &rackbusv1.JobCommand_SwitchCertificate{SwitchCertificate: &rackbusv1.SwitchCertificate{
				Services: []string{"nvue-api", "scale-up-fabric-manager"}, TestHello: true, RunId: "2026-11-29_00-00-00_000",
				CaCertificateId: "rms-site-ca-1", EntityCertificateId: "rms-site-cert-1",
			}}
		}))
	require.Nil(t, b.Ask(b.node, switchagent.OpNVOSHello).GetError(), "verified both ways")

	reconcile := func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_FabricReconcile{FabricReconcile: &rackbusv1.FabricReconcile{
			Switches: []*rackbusv1.FabricSwitch{{Target: b.node}}, Topology: topology,
		}}
	}
	completed(b.do(job.TypeConfigureScaleUpFabricManager2, nil, reconcile))
	require.Equal(t, topology, b.sw.StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
	writes := len(b.sw.Requests(reqlog.Filter{Writes: true}))
	completed(b.do(job.TypeConfigureScaleUpFabricManager2, nil, reconcile))
	require.Len(t, b.sw.Requests(reqlog.Filter{Writes: true}), writes, "the second changes nothing")

	status := b.Ask(b.node, "fabric_status").GetFabricStatus()
	require.True(t, status.GetEnabled())
	require.Equal(t, topology, status.GetTopology())
	require.Contains(t, b.Ask(b.node, "fabric_state_get").GetResultJson(), "enabled")
	require.Contains(t, b.Ask(b.node, "fabric_service_status").GetResultJson(), "green")
	configured := b.Ask(b.node, "fabric_configure", func(r *rackbusv1.NodeRequest) {
		r.SwitchOperation = &rackbusv1.NodeRequest_FabricManager{FabricManager: &rackbusv1.FabricManagerRequest{Topology: topology}}
	}).GetFabricManager()
	require.True(t, configured.GetConfigured(), configured.GetMessage())
	require.Nil(t, b.Ask(b.node, "fabric_telemetry_set", func(r *rackbusv1.NodeRequest) {
		r.SwitchOperation = &rackbusv1.NodeRequest_FabricSwitch{FabricSwitch: &rackbusv1.FabricSwitchRequest{Enabled: true}}
	}).GetError())
	require.Equal(t, "enabled", b.sw.Config("/system/gnmi-server/state"))
	evidence := b.Ask(b.node, switchagent.OpSPDMEvidence, func(r *rackbusv1.NodeRequest) {
		r.SwitchOperation = &rackbusv1.NodeRequest_Spdm{Spdm: &rackbusv1.SpdmRequest{Nonce: make([]byte, 32)}}
	}).GetSpdmEvidence()
	require.Len(t, evidence.GetComponents(), 2)

	completed(b.do(job.TypeSwitchSdnFactoryDefaultReset, nil, func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_SdnReset{SdnReset: &rackbusv1.SdnReset{}}
	}))
	completed(b.do(job.TypeSwitchMtlsDisable, nil, func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_SwitchMtlsDisable{SwitchMtlsDisable: &rackbusv1.SwitchMtlsDisable{Services: []string{"scale-up-fabric-manager"}}}
	}))
	const next = "n3xt-" + planted
	completed(b.do(job.TypeSwitchSystemPasswordUpdate, &rackbusv1.SwitchPasswordSecrets{Password: next}, func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_SwitchPasswordUpdate{SwitchPasswordUpdate: &rackbusv1.SwitchPasswordUpdate{Username: b.sw.Username()}}
	}))
	require.Equal(t, next, b.sw.UserPassword(b.sw.Username()))

	b.node = b.Target(agenttest.Device{RackID: "r1", NodeID: b.sw.ID(), Type: b.sw.NodeType(), IP: b.sw.IP(), Port: 1,
		Host: &agenttest.Host{IP: b.sw.IP(), Port: b.sw.Ports().NVUE, User: b.sw.Username(), Password: next}})
	completed(b.do(job.TypeSwitchFactoryDefaultReset, nil, func(c *rackbusv1.JobCommand) {
		c.Operation = &rackbusv1.JobCommand_SwitchFactoryReset{SwitchFactoryReset: &rackbusv1.SwitchFactoryReset{}}
	}))
	require.Equal(t, 1, b.sw.FactoryResets())
	require.Equal(t, "admin", b.sw.UserPassword("admin"))
}
