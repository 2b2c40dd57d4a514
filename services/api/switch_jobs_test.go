// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

const (
	svcNVUE      = rackmanager.SwitchService_SWITCH_SERVICE_NVUE_API
	svcTelemetry = rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY
	svcManager   = rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_MANAGER
	svcInterface = rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY_INTERFACE
)

func TestBatchResetSwitchFactoryDefault(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(nil)
	bad, texts := badSwitches()
	req := &rackmanager.BatchResetSwitchFactoryDefaultRequest{
		Nodes: set(append(bad, switchNode("r1", 1), switchNode("r1", 2))...), Domain: proto.String(" lab "),
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k")
	resp, err := h.rm.BatchResetSwitchFactoryDefault(ctx, req)
	require.NoError(t, err)
	r := resp.GetResponse()
	requireFailure(t, r.GetStatus())
	requireStats(t, 10, 8, r)
	texts["sw-1"], texts["sw-2"] = "", ""
	require.Equal(t, texts, messages(r), "admitted switches have a line too")
	for name, ran := range agents.next(2) {
		require.Equal(t, string(job.TypeSwitchFactoryDefaultReset), ran.cmd.GetType())
		require.Equal(t, "lab", ran.cmd.GetSwitchFactoryReset().GetDomain(), name)
	}
	again, err := h.rm.BatchResetSwitchFactoryDefault(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(resp, again), "%v", again)

	all, err := h.rm.BatchResetSwitchFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: set(switchNode("r2", 3))})
	require.NoError(t, err)
	requireSuccess(t, all.GetResponse().GetStatus(), all.GetResponse().GetMessage())
	require.Contains(t, all.GetResponse().GetMessage(), "Created 1 switch factory-default reset jobs out of 1 nodes. Use GetJobStatus")

	none, err := h.rm.BatchResetSwitchFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchFactoryDefaultRequest{})
	require.NoError(t, err)
	require.Equal(t, textNoNodes, none.GetResponse().GetMessage())
	_, err = h.rm.BatchResetSwitchFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: set(typed("r1", "x", 99))})
	requireCode(t, err, codes.InvalidArgument, "unknown node type value 99")
}

func TestBatchResetSwitchSdnFactoryDefault(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(nil)
	padded := switchNode(" r1 ", 1)
	padded.NodeId = " sw-1 "
	badBMC, loopBMC := switchNode("r1", 3), switchNode("r1", 4)
	badBMC.BmcEndpoint.Interface.IpAddress, loopBMC.BmcEndpoint.Interface.IpAddress = "", "::ffff:169.254.0.9"
	req := &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{
		Nodes: set(padded, switchNode("r1", 1), badBMC, loopBMC, switchNode("r1", 2)), Domain: proto.String("lab"),
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k")
	resp, err := h.rm.BatchResetSwitchSdnFactoryDefault(ctx, req)
	require.NoError(t, err)
	r := resp.GetResponse()
	requireFailure(t, r.GetStatus())
	requireStats(t, 5, 3, r)
	require.Equal(t, map[string]string{
		"sw-1": job.DuplicateText("r1", "sw-1"), "sw-3": "invalid BMC endpoint for switch sw-3: missing BMC endpoint ip_address",
		"sw-4": "invalid BMC endpoint for switch sw-4: switch target host is not allowed: ::ffff:169.254.0.9",
	}, messages(r), "only refused switches have a line")
	ran := agents.next(2)
	require.Equal(t, "lab", ran["sw-1"].cmd.GetSdnReset().GetDomain())
	require.Equal(t, "r1", ran["sw-1"].cmd.GetTarget().GetRackId())
	again, err := h.rm.BatchResetSwitchSdnFactoryDefault(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(resp, again), "%v", again)

	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	bad, texts := badSwitches()
	none, err := h.rm.BatchResetSwitchSdnFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{Nodes: set(append(bad, bad[0])...)})
	require.NoError(t, err)
	requireFailure(t, none.GetResponse().GetStatus())
	require.Empty(t, none.GetResponse().GetJobId(), "no parent without any valid switch")
	requireStats(t, 9, 9, none.GetResponse())
	texts["tray"] = job.DuplicateText("r1", "tray")
	require.Equal(t, texts, messages(none.GetResponse()))
	empty, err := h.rm.BatchResetSwitchSdnFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchSdnFactoryDefaultRequest{})
	require.NoError(t, err)
	require.Equal(t, textNoNodes, empty.GetResponse().GetMessage())
	after, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Equal(t, count, after)
}

func TestRunID(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 67_999_999, time.FixedZone("x", 3600))
	require.Equal(t, "2026-01-02_02-04-05_067", runID(at))
	require.Equal(t, "lab-1--z", certificateDomain("lab-1.üz"))
}

func TestConfigureSwitchCertificate(t *testing.T) {
	t.Parallel()
	installed, client := t.TempDir(), t.TempDir()
	want := material(t, installed, "lab.1")
	material(t, client, "lab.1")
	h := newHarness(t, withTLS(switchtls.Settings{InstalledRoot: installed, ClientRoot: client, DefaultDomain: "other"}))
	agents := h.switches(nil)
	req := &rackmanager.ConfigureSwitchCertificateRequest{
		Nodes: set(switchNode("r1", 1), switchNode("r1", 2), compute("r1", "tray")), Domain: proto.String(" lab.1 "), TestHello: true,
		Services: []rackmanager.SwitchService{svcNVUE, svcManager, svcNVUE, svcTelemetry, svcInterface},
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k")
	resp, err := h.rm.ConfigureSwitchCertificate(ctx, req)
	require.NoError(t, err)
	r := resp.GetResponse()
	requireFailure(t, r.GetStatus())
	requireStats(t, 3, 1, r)
	require.Contains(t, r.GetMessage(), "Created 2 switch certificate install jobs out of 3 nodes. Use GetConfigureSwitchCertificateJobStatus")
	require.Equal(t, map[string]string{"tray": "node tray is not a switch (type=compute_gb200_nvidia)"}, messages(r))
	require.Len(t, resp.GetJobs(), 2)

	ran := agents.next(2)
	op := ran["sw-1"].cmd.GetSwitchCertificate()
	require.True(t, proto.Equal(op, ran["sw-2"].cmd.GetSwitchCertificate()), "one run for the whole batch")
	require.Equal(t, []string{"nvue-api", "scale-up-fabric-manager", "scale-up-fabric-telemetry", "scale-up-fabric-telemetry-interface"}, op.GetServices())
	require.True(t, op.GetTestHello())
	require.False(t, op.GetUnset())
	require.Equal(t, "lab.1", op.GetDomain())
	require.Regexp(t, `^\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d{3}$`, op.GetRunId())
	require.Equal(t, "rms-lab-1-ca-"+op.GetRunId(), op.GetCaCertificateId())
	require.Equal(t, "rms-lab-1-cert-"+op.GetRunId(), op.GetEntityCertificateId())
	for _, name := range []string{"sw-1", "sw-2"} {
		got := ran[name].secrets.(*rackbusv1.SwitchCertificateSecrets)
		require.Equal(t, want.CA, got.GetCa())
		require.Equal(t, want.Certificate, got.GetCertificate())
		require.Equal(t, want.Key.Reveal(), string(got.GetKey()))
	}
	again, err := h.rm.ConfigureSwitchCertificate(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(resp, again), "%v", again)
	block, _ := pem.Decode(want.Key.Bytes())
	require.NotNil(t, block)
	line := strings.Split(strings.TrimSpace(want.Key.Reveal()), "\n")[1]
	h.requireNowhere(plantedPassword, line, string(block.Bytes))
}

// J6: apps of the cluster are left alone on switches whose rack has its fabric on
// another one, which may be registered only. A switch that does not tell is not.
func TestJ6CertificatesOfAFabricWithOneManager(t *testing.T) {
	t.Parallel()
	installed := t.TempDir()
	material(t, installed, "lab")
	h := newHarness(t, withTLS(switchtls.Settings{InstalledRoot: installed, DefaultDomain: "lab"}), func(o *Options) {
		o.Timing.FabricRoleLimit = 10 * time.Second
	})
	states := map[string]string{
		"r1/sw-1": `{"state":"enabled"}`, "r1/sw-2": `{"state":"disabled"}`, "r1/sw-4": `{}`,
		"r2/sw-1": `{"state":"disabled"}`, "r2/sw-2": `{"state":"disabled"}`,
		"r3/sw-1": `{"state":"disabled"}`, "r3/sw-9": `{"state":"start"}`,
	}
	agents := h.switches(map[string]agent.QueryHandler{opFabricStateGet: func(ctx context.Context, q *agent.Query) *rackbusv1.NodeReply {
		doc, ok := states[q.Target().GetRackId()+"/"+q.Target().GetNodeId()]
		if !ok {
			return agent.Refuse("unavailable", "no answer", "")
		}
		return answering(doc)(ctx, q)
	}})
	h.register(switchNode("r3", 9))
	install := func(services []rackmanager.SwitchService, nodes ...*rackmanager.NodeInfo) map[string]bool {
		resp, err := h.rm.ConfigureSwitchCertificate(t.Context(), &rackmanager.ConfigureSwitchCertificateRequest{Nodes: set(nodes...), Services: services})
		require.NoError(t, err)
		requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
		out := make(map[string]bool)
		for id, ran := range agents.next(len(nodes)) {
			out[id] = ran.cmd.GetSwitchCertificate().GetFabricElsewhere()
		}
		return out
	}
	app := []rackmanager.SwitchService{svcManager}
	require.Equal(t, map[string]bool{"sw-1": false, "sw-2": true, "sw-3": false, "sw-4": false},
		install(app, switchNode("r1", 1), switchNode("r1", 2), switchNode("r1", 3), switchNode("r1", 4)))
	require.Equal(t, map[string]bool{"sw-1": false, "sw-2": false}, install(app, switchNode("r2", 1), switchNode("r2", 2)), "no fabric yet")
	require.Equal(t, map[string]bool{"sw-1": true}, install(app, switchNode("r3", 1)), "the registered switch runs it")
	asked := len(agents.requests(opFabricStateGet))
	require.Equal(t, "lab", agents.requests(opFabricStateGet)[0].GetDomain())
	require.Equal(t, map[string]bool{"sw-5": false}, install([]rackmanager.SwitchService{svcInterface}, switchNode("r1", 5)))
	require.Len(t, agents.requests(opFabricStateGet), asked, "nobody is asked for services of NVOS itself")
}

func TestConfigureSwitchCertificateIsRefused(t *testing.T) {
	t.Parallel()
	installed, client := t.TempDir(), t.TempDir()
	material(t, installed, "lab")
	material(t, installed, "both")
	material(t, client, "both")
	material(t, installed, "broken")
	require.NoError(t, os.WriteFile(filepath.Join(installed, "broken", switchtls.FileKey), []byte("no key"), 0o600))
	h := newHarness(t, withTLS(switchtls.Settings{InstalledRoot: installed, ClientRoot: client}))
	one := set(switchNode("r1", 1))
	services := func(s ...rackmanager.SwitchService) []rackmanager.SwitchService { return s }
	lab, both := proto.String("lab"), proto.String("both")
	for name, c := range map[string]struct {
		req  *rackmanager.ConfigureSwitchCertificateRequest
		code codes.Code
		text string
	}{
		// The order of the checks: domain, services, test_hello, material, nodes.
		"no domain":        {&rackmanager.ConfigureSwitchCertificateRequest{}, codes.FailedPrecondition, "domain was not provided"},
		"domain syntax":    {&rackmanager.ConfigureSwitchCertificateRequest{Domain: proto.String("../x")}, codes.FailedPrecondition, "one folder name"},
		"no services":      {&rackmanager.ConfigureSwitchCertificateRequest{Domain: lab}, codes.InvalidArgument, "services must name"},
		"unspecified":      {&rackmanager.ConfigureSwitchCertificateRequest{Domain: lab, Services: services(svcNVUE, 0)}, codes.InvalidArgument, "services names 0"},
		"unknown service":  {&rackmanager.ConfigureSwitchCertificateRequest{Domain: lab, Services: services(9)}, codes.InvalidArgument, "services names 9"},
		"hello":            {&rackmanager.ConfigureSwitchCertificateRequest{Domain: proto.String("x"), Services: services(svcTelemetry), TestHello: true}, codes.InvalidArgument, "test_hello needs"},
		"no material":      {&rackmanager.ConfigureSwitchCertificateRequest{Domain: proto.String("x"), Services: services(svcTelemetry)}, codes.FailedPrecondition, "missing a file"},
		"broken material":  {&rackmanager.ConfigureSwitchCertificateRequest{Domain: proto.String("broken"), Services: services(svcTelemetry)}, codes.FailedPrecondition, "unusable"},
		"no client, NVUE":  {&rackmanager.ConfigureSwitchCertificateRequest{Domain: lab, Services: services(svcNVUE), Nodes: one}, codes.FailedPrecondition, "client_tls_root"},
		"no client, hello": {&rackmanager.ConfigureSwitchCertificateRequest{Domain: lab, Services: services(svcManager), TestHello: true, Nodes: one}, codes.FailedPrecondition, "client_tls_root"},
		"no nodes":         {&rackmanager.ConfigureSwitchCertificateRequest{Domain: both, Services: services(svcNVUE)}, codes.InvalidArgument, textNoNodes},
		"node type":        {&rackmanager.ConfigureSwitchCertificateRequest{Nodes: set(typed("r1", "x", 99))}, codes.InvalidArgument, "unknown node type value 99"},
	} {
		_, err := h.rm.ConfigureSwitchCertificate(t.Context(), c.req)
		require.Error(t, err, name)
		requireCode(t, err, c.code, c.text)
	}
	count, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Zero(t, count)

	// Without a hello, services that are not NVUE need no identity of ours.
	resp, err := h.rm.ConfigureSwitchCertificate(t.Context(), &rackmanager.ConfigureSwitchCertificateRequest{
		Domain: lab, Services: services(svcManager), Nodes: one})
	require.NoError(t, err)
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
}

// With unverified connections the certificates go, and nothing that is about them counts.
func TestConfigureSwitchCertificateInsecure(t *testing.T) {
	t.Parallel()
	h := newHarness(t, insecureSwitches)
	agents := h.switches(nil)
	resp, err := h.rm.ConfigureSwitchCertificate(t.Context(), &rackmanager.ConfigureSwitchCertificateRequest{
		Nodes: set(switchNode("r1", 1)), Domain: proto.String("../x"), Services: []rackmanager.SwitchService{svcTelemetry}, TestHello: true})
	require.NoError(t, err)
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	ran := agents.next(1)["sw-1"]
	require.True(t, proto.Equal(&rackbusv1.SwitchCertificate{Services: []string{"scale-up-fabric-telemetry"}, Unset: true}, ran.cmd.GetSwitchCertificate()))
	require.Nil(t, ran.secrets)
	_, err = h.rm.ConfigureSwitchCertificate(t.Context(), &rackmanager.ConfigureSwitchCertificateRequest{Nodes: set(switchNode("r1", 1))})
	requireCode(t, err, codes.InvalidArgument, "services must name")
}

func TestBatchDisableSwitchMtls(t *testing.T) {
	t.Parallel()
	h := newHarness(t) // without any TLS material
	agents := h.switches(nil)
	req := &rackmanager.BatchDisableSwitchMtlsRequest{
		Nodes:    set(switchNode("r1", 1), compute("r1", "tray"), switchNode("r1", 1)),
		Services: []rackmanager.SwitchService{svcInterface, svcNVUE, svcInterface},
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k")
	resp, err := h.rm.BatchDisableSwitchMtls(ctx, req)
	require.NoError(t, err)
	r := resp.GetResponse()
	requireStats(t, 3, 2, r)
	require.Len(t, r.GetNodeResults(), 3)
	require.Empty(t, r.GetNodeResults()[0].GetErrorMessage())
	require.Equal(t, job.DuplicateText("r1", "sw-1"), r.GetNodeResults()[2].GetErrorMessage())
	ran := agents.next(1)["sw-1"]
	require.Equal(t, string(job.TypeSwitchMtlsDisable), ran.cmd.GetType())
	require.Equal(t, []string{"scale-up-fabric-telemetry-interface", "nvue-api"}, ran.cmd.GetSwitchMtlsDisable().GetServices())
	again, err := h.rm.BatchDisableSwitchMtls(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(resp, again), "%v", again)

	for text, bad := range map[string]*rackmanager.BatchDisableSwitchMtlsRequest{
		"services must name": {Nodes: req.GetNodes()},
		"services names 7":   {Nodes: req.GetNodes(), Services: []rackmanager.SwitchService{7}},
		textNoNodes:          {Services: req.GetServices()},
	} {
		_, err := h.rm.BatchDisableSwitchMtls(t.Context(), bad)
		requireCode(t, err, codes.InvalidArgument, text)
	}
}

func TestUpdateSwitchSystemPassword(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	agents := h.switches(nil)
	req := &rackmanager.UpdateSwitchSystemPasswordRequest{
		Nodes: set(switchNode("r1", 1), switchNode("r1", 2), compute("r1", "tray")), Username: "admin", Password: plantedNew,
	}
	ctx := with(t.Context(), metaIdempotencyKey, "k")
	resp, err := h.rm.UpdateSwitchSystemPassword(ctx, req)
	require.NoError(t, err)
	r := resp.GetResponse()
	requireStats(t, 3, 1, r)
	require.Equal(t, map[string]string{"sw-1": "", "sw-2": "", "tray": "node tray is not a switch (type=compute_gb200_nvidia)"}, messages(r))
	ran := agents.next(2)
	sealed := make(map[string]bool)
	for _, name := range []string{"sw-1", "sw-2"} {
		require.Equal(t, "admin", ran[name].cmd.GetSwitchPasswordUpdate().GetUsername())
		require.Equal(t, plantedNew, ran[name].secrets.(*rackbusv1.SwitchPasswordSecrets).GetPassword())
		sealed[string(ran[name].cmd.GetSecrets().GetData())] = true
	}
	require.Len(t, sealed, 2, "sealed for each job of its own")
	again, err := h.rm.UpdateSwitchSystemPassword(ctx, req)
	require.NoError(t, err)
	require.True(t, proto.Equal(resp, again), "%v", again)
	h.requireNowhere(plantedPassword, plantedNew)

	for text, bad := range map[string]*rackmanager.UpdateSwitchSystemPasswordRequest{
		"username must consist": {Nodes: req.GetNodes(), Password: "p"},
		"letters and digits":    {Nodes: req.GetNodes(), Username: "ad-min", Password: "p"},
		"password is required":  {Nodes: req.GetNodes(), Username: "admin"},
		textNoNodes:             {Username: "admin", Password: "p"},
		"more than once":        {Nodes: set(switchNode("r1", 1), switchNode("r2", 1), switchNode("r1", 1)), Username: "admin", Password: "p"},
	} {
		_, err := h.rm.UpdateSwitchSystemPassword(t.Context(), bad)
		requireCode(t, err, codes.InvalidArgument, text)
	}
}

// A job of any kind keeps the others off.
func TestSwitchJobsExcludeEachOther(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	first, err := h.rm.UpdateSwitchSystemPassword(t.Context(), &rackmanager.UpdateSwitchSystemPasswordRequest{
		Nodes: set(switchNode("r1", 1)), Username: "admin", Password: plantedNew})
	require.NoError(t, err)
	requireSuccess(t, first.GetResponse().GetStatus(), first.GetResponse().GetMessage())
	holder := h.commands(node.FamilySwitch, 1)["sw-1"].GetJobId()
	reset, err := h.rm.BatchResetSwitchFactoryDefault(t.Context(), &rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: set(switchNode("r1", 1))})
	require.NoError(t, err)
	require.Equal(t, "No switch factory-default reset jobs created", reset.GetResponse().GetMessage())
	require.Contains(t, messages(reset.GetResponse())["sw-1"], holder)
	record, _, err := h.conn.Record(t.Context(), parseID(t, reset.GetResponse().GetJobId()))
	require.NoError(t, err)
	require.Equal(t, job.StateFailed, record.State)
}
