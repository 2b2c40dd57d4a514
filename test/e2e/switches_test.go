// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
	"github.com/rackbus/rackbus/test/secrets"
)

const (
	fabricSwitches = 9
	// primary is the switch lowest in the rack, which runs the fabric manager.
	primary    = "switch-0001"
	topology   = "gb200_nvl72r1_c2g4_topology"
	switchUser = "admin"
	// newVersion is installed first, newestVersion then.
	newVersion    = "25.02.4440"
	newestVersion = "25.02.5550"
)

// fabric is a cluster with the switches of a rack, and the secrets that go through it.
type fabric struct {
	*cluster.Cluster
	*cluster.Client
	rack *sim.Rack
	// password is the one that the switches have now.
	password, renewed string
	// key is a part of the private key that switches are given.
	key   string
	nonce []byte
	trap  *secrets.Trap
	tape  *secrets.Tape
}

// TestSwitches takes nine switches with an older image and older certificates to a fabric that works, through separate
// processes. The parts build on each other.
func TestSwitches(t *testing.T) {
	t.Parallel()
	f := newFabric(t, sim.Options{Switches: fabricSwitches}, "nvue")
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"register", f.register},
		{"image", f.image},
		{"telemetry interface", f.telemetryInterface},
		{"certificate refused", f.certificateRefused},
		{"certificates", f.certificates},
		{"image while the agent dies", f.imageWhileAgentDies},
		{"reconcile", f.reconcile},
		{"reconcile again", f.reconcileAgain},
		{"password refused", f.passwordRefused},
		{"password", f.rotate},
		{"fabric status", f.fabricStatus},
		{"switch status", f.switchStatus},
		{"evidence refused", f.evidenceRefused},
		{"attestation", f.attest},
		{"status of slow switches", f.slowStatus},
		{"SDN reset", f.resetSDN},
		{"reconcile after the reset", f.reconcile},
		{"no secret leaks", f.noSecretLeaks},
	} {
		if !t.Run(part.name, part.run) {
			return
		}
	}
}

// newFabric starts a cluster with the switches of one rack, some services of which have certificates already.
func newFabric(t *testing.T, rack sim.Options, provisioned ...string) *fabric {
	f := &fabric{trap: &secrets.Trap{}, tape: &secrets.Tape{}}
	f.password = f.trap.Plant("password", switchUser, `Sw1tch&p/ss+w=rd "planted"`)
	f.renewed = f.trap.Plant("new password", switchUser, `Ren3wed&p/ss+w=rd <planted>`)
	f.nonce = []byte(f.trap.Plant("nonce", switchUser, "planted nonce of 32 random bytes"))
	rack.RackID, rack.SwitchUsername, rack.SwitchPassword = "fabric", switchUser, f.password
	f.Cluster = cluster.Start(t, cluster.Options{
		PlainStore: true, Settings: map[string]string{"logging.log_level": `"trace"`},
		Racks: []sim.Options{rack},
	})
	f.rack = f.Racks[0]
	f.key = f.trap.Plant("private key of switches", switchUser, secretLine(f.Domain.Installed.Key))
	f.trap.Plant("private key of Rackbus", switchUser, secretLine(f.Domain.Client.Key))
	for _, s := range f.rack.Switches() {
		require.NoError(t, s.Provision("earlier", f.Domain.Earlier, provisioned...))
	}
	f.Client = f.Cluster.Client(0, grpc.WithChainUnaryInterceptor(f.tape.Unary))
	return f
}

// secretLine is the line of a PEM text in which most of the private number is; the line before it begins alike in all
// keys of a kind.
func secretLine(key []byte) string { return string(bytes.Split(key, []byte("\n"))[2]) }

// switches are nodes with the password that they have now; all of them without ids.
func (f *fabric) switches(ids ...string) *rackmanager.NodeSet {
	set := f.NodeSet(f.rack, ids...)
	for _, n := range set.GetNodes() {
		n.HostEndpoint.Credentials.GetUserPass().Password = f.password
	}
	return set
}

// batch waits for all jobs of an answer in which no switch was refused.
func (f *fabric) batch(ctx context.Context, t *testing.T, b *rackmanager.NodeBatchResponse) []*rackmanager.JobStatus {
	t.Helper()
	require.Equal(t, success, b.GetStatus(), "%v", b)
	require.EqualValues(t, fabricSwitches, b.GetStats().GetSuccessfulNodes())
	return f.finished(ctx, t, b.GetJobId())
}

// finished waits for a job that must complete, and returns it with its children.
func (f *fabric) finished(ctx context.Context, t *testing.T, id string) []*rackmanager.JobStatus {
	t.Helper()
	require.NotEmpty(t, id)
	_, err := f.WaitJob(ctx, id)
	require.NoError(t, err)
	out, err := f.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: id, IncludeChildJobStates: true})
	require.NoError(t, err)
	for _, s := range slices.Backward(out.GetJobStates()) { // a child tells why its parent has failed
		require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, s.GetExecutionState(), "%v", s)
		require.Empty(t, s.GetErrorMessage())
	}
	return out.GetJobStates()
}

// since returns the writes that a call to do has caused, per switch.
func (f *fabric) since(do func()) map[string][]reqlog.Entry {
	last := map[string]uint64{}
	for _, s := range f.rack.Switches() {
		for _, e := range s.Requests(reqlog.Filter{}) {
			last[s.ID()] = max(last[s.ID()], e.Seq)
		}
	}
	do()
	out := map[string][]reqlog.Entry{}
	for _, s := range f.rack.Switches() {
		if writes := s.Requests(reqlog.Filter{Writes: true, After: last[s.ID()]}); len(writes) > 0 {
			out[s.ID()] = writes
		}
	}
	return out
}

func (f *fabric) register(t *testing.T) {
	out, err := f.CreateNodes(within(t), &rackmanager.CreateNodesRequest{Nodes: f.switches()})
	require.NoError(t, err)
	require.Equal(t, success, out.GetResponse().GetStatus(), out.GetResponse().GetMessage())
	require.EqualValues(t, fabricSwitches, out.GetStats().GetSuccessfulNodes())
}

// install begins to install a version on all switches.
func (f *fabric) install(ctx context.Context, t *testing.T, version string) *rackmanager.UpdateSwitchSystemImageResponse {
	t.Helper()
	name := "nvos-amd64-" + version + ".bin"
	f.WriteFirmware(name, nvswitch.ImageContent(version, 1<<20))
	out, err := f.UpdateSwitchSystemImage(ctx, &rackmanager.UpdateSwitchSystemImageRequest{
		Nodes: f.switches(), ImageFilename: name, LocalFilePath: name,
	})
	require.NoError(t, err)
	require.Len(t, out.GetJobs(), fabricSwitches)
	return out
}

// installed checks that all switches run a version, after so many installations and reboots.
func (f *fabric) installed(t *testing.T, version string, times int) {
	t.Helper()
	for _, s := range f.rack.Switches() {
		require.Equal(t, "nvos-"+version, s.Images().Current, s.ID())
		require.Len(t, s.Installs(), times, s.ID())
		require.Equal(t, times, s.Reboots(), s.ID())
	}
}

// image: all switches boot the new build, from one installation each, and are left alone when they run it.
func (f *fabric) image(t *testing.T) {
	ctx := withinRack(t)
	out := f.install(ctx, t, newVersion)
	f.batch(ctx, t, out.GetResponse())
	for _, job := range out.GetJobs() {
		s, err := f.GetSwitchSystemImageJobStatus(ctx, &rackmanager.GetSwitchSystemImageJobStatusRequest{JobId: job.GetJobId()})
		require.NoError(t, err)
		require.Equal(t, "completed", s.GetState(), "%v", s)
		require.Equal(t, "success", result(t, s.GetResultJson())["status"])
	}
	f.installed(t, newVersion, 1)
	require.Empty(t, f.since(func() { f.batch(ctx, t, f.install(ctx, t, newVersion).GetResponse()) }))
}

// imageWhileAgentDies: the next life of the agent goes on where the first was, and installs nothing twice.
func (f *fabric) imageWhileAgentDies(t *testing.T) {
	ctx := withinRack(t)
	out := f.install(ctx, t, newestVersion)
	_, err := f.PollJob(ctx, out.GetJobs()[0].GetJobId(), func(s *rackmanager.JobStatus) bool {
		return len(f.rack.Switch(s.GetNodeId()).Installs()) == 2
	})
	require.NoError(t, err)
	agent := f.Processes(cluster.RoleSwitchAgent)[0]
	agent.Kill()
	require.NoError(t, agent.Start())
	f.batch(ctx, t, out.GetResponse())
	f.installed(t, newestVersion, 2)
}

// telemetryInterface: the gNMI server of every switch is switched on, once.
func (f *fabric) telemetryInterface(t *testing.T) {
	ctx := withinRack(t)
	enable := func() {
		for _, n := range f.switches().GetNodes() {
			out, err := f.SetScaleUpFabricTelemetryInterfaceState(ctx, &rackmanager.SetScaleUpFabricTelemetryInterfaceStateRequest{Node: n, Enable: true})
			require.NoError(t, err)
			require.Equal(t, success, out.GetStatus(), out.GetErrorMessage())
			require.Equal(t, map[string]any{"status": "success", "state": "enabled"}, result(t, out.GetResultJson()))
		}
	}
	require.Len(t, f.since(enable), fabricSwitches)
	for _, s := range f.rack.Switches() {
		require.Equal(t, "enabled", s.SavedConfig("/system/gnmi-server/state"), s.ID())
	}
	require.Empty(t, f.since(enable))
}

// certificates: every service of every switch shows the identity it was given, and NVUE takes nobody without one.
func (f *fabric) certificates(t *testing.T) {
	ctx := withinRack(t)
	out, err := f.ConfigureSwitchCertificate(ctx, &rackmanager.ConfigureSwitchCertificateRequest{
		Nodes: f.switches(), TestHello: true, Services: []rackmanager.SwitchService{
			rackmanager.SwitchService_SWITCH_SERVICE_NVUE_API,
			rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_MANAGER,
			rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY,
			rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY_INTERFACE,
		},
	})
	require.NoError(t, err)
	require.Len(t, out.GetJobs(), fabricSwitches)
	f.batch(ctx, t, out.GetResponse())
	for _, job := range out.GetJobs() {
		s, err := f.GetConfigureSwitchCertificateJobStatus(ctx, &rackmanager.GetConfigureSwitchCertificateJobStatusRequest{JobId: job.GetJobId()})
		require.NoError(t, err)
		require.Equal(t, "completed", s.GetState(), "%v", s)
		got := result(t, s.GetResultJson())
		require.Equal(t, cluster.SwitchDomain, got["domain"])
		for _, test := range []string{"nvue_hello_test", "hello_test", "gnmi_capabilities_test"} {
			require.Equal(t, "success", got[test], "%s on %s", test, job.GetNodeId())
		}
		sw, ca, entity := f.rack.Switch(job.GetNodeId()), got["ca_certificate_id"], got["entity_certificate_id"]
		for _, app := range []string{"nmx-controller", "nmx-telemetry"} {
			a := sw.App(app)
			require.Equal(t, []any{"mtls", entity, ca}, []any{a.Encryption, a.Certificate, a.Authority}, "%s of %s", app, sw.ID())
		}
		for _, path := range []string{"/system/api", "/system/gnmi-server"} {
			require.Equal(t, entity, sw.SavedConfig(path+"/certificate"), "%s of %s", path, sw.ID())
			require.Equal(t, ca, sw.SavedConfig(path+"/mtls/ca-certificate"), "%s of %s", path, sw.ID())
		}
	}
}

// configure brings the fabric to its topology, and returns the result of the job.
func (f *fabric) configure(t *testing.T) map[string]any {
	t.Helper()
	ctx := withinRack(t)
	out, err := f.V2.ConfigureScaleUpFabricManager(ctx, &rackmanagerv2.ConfigureScaleUpFabricManagerRequest{
		Nodes: f.switches(), Config: &rackmanagerv2.ScaleUpFabricConfig{
			TopologyType: topology,
			ExtraStaticConfigs: []*rackmanager.ScaleUpFabricStaticConfig{
				{ConfigFileName: "sm_config", Key: "MAX_OP_VLS", Value: "4"},
			},
		},
	})
	require.NoError(t, err)
	got := result(t, f.finished(ctx, t, out.GetJobId())[0].GetResultJson())
	require.Equal(t, topology, got["topology_type"])
	require.Len(t, got["switches"], len(f.rack.Switches()))
	return got
}

func (f *fabric) reconcile(t *testing.T) {
	f.configure(t)
	for _, s := range f.rack.Switches() {
		want := "disabled"
		if s.ID() == primary {
			want = "enabled"
		}
		require.Equal(t, want, s.Config("/cluster/state"), s.ID())
	}
	sw := f.rack.Switch(primary)
	require.Equal(t, topology, sw.StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
	require.Equal(t, "4", sw.StaticConfig("sm_config", "MAX_OP_VLS"))
	require.Equal(t, "CONTROL_PLANE_STATE_CONFIGURED", sw.App("nmx-controller").Plane)
}

// reconcileAgain: a fabric that is as wanted is read, and not touched.
func (f *fabric) reconcileAgain(t *testing.T) {
	require.Empty(t, f.since(func() { f.configure(t) }))
}

// TestFabricOfVRSwitches: a fabric that is as wanted is left alone but for the report on its connections, which only the
// switch itself can make.
func TestFabricOfVRSwitches(t *testing.T) {
	t.Parallel()
	const kind = "switch_vrnvl72_nvidia"
	f := newFabric(t, sim.Options{NodeTypes: []sim.NodeTypeCount{{Type: kind, Count: 3}}}, "nvue", "nmxc")
	require.Equal(t, "ok", f.configure(t)["sdn_fabric_state"])
	sw := f.rack.Switch(primary)
	require.Len(t, sw.Servers("primary"), 3)
	require.Equal(t, topology, sw.StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
	writes := f.since(func() { require.Equal(t, "ok", f.configure(t)["sdn_fabric_state"]) })
	require.Len(t, writes, 1)
	require.Len(t, writes[primary], 1, "%v", writes)
	require.Equal(t, "nv action generate sdn state apps nmx-controller type nv-bridge-state-report", writes[primary][0].Path)
}

// rotate gives all switches a new password, and tells the inventory.
func (f *fabric) rotate(t *testing.T) {
	ctx := withinRack(t)
	out, err := f.UpdateSwitchSystemPassword(ctx, &rackmanager.UpdateSwitchSystemPasswordRequest{
		Nodes: f.switches(), Username: switchUser, Password: f.renewed,
	})
	require.NoError(t, err)
	f.batch(ctx, t, out.GetResponse())
	for _, s := range f.rack.Switches() {
		require.Equal(t, f.renewed, s.UserPassword(switchUser), s.ID())
	}
	f.password = f.renewed
	for _, n := range f.switches().GetNodes() {
		updated, err := f.UpdateNode(ctx, &rackmanager.UpdateNodeRequest{
			RackId: n.GetRackId(), NodeId: n.GetNodeId(), UpdateInfo: &rackmanager.NodeUpdateInfo{HostEndpoint: n.GetHostEndpoint()},
		})
		require.NoError(t, err)
		require.Equal(t, success, updated.GetResponse().GetStatus(), updated.GetResponse().GetMessage())
	}
}

func result(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &out), "%q", text)
	return out
}

// withinRack returns a context for work on all switches.
func withinRack(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 6*time.Minute, context.DeadlineExceeded)
	t.Cleanup(cancel)
	return ctx
}
