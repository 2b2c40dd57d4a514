// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"context"
	"encoding/json"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// hostTools stand in for the way over the host: they note what they were given and
// when they were asked. The real one is tested with package flint.
type hostTools struct {
	mu      sync.Mutex
	updates []redfishagent.InBandUpdate
	content map[string]string
	flashed []time.Time
	ready   []time.Time
	// nothing says that every device has its version.
	nothing bool
}

// Begin takes a group.
func (h *hostTools) Begin(u redfishagent.InBandUpdate) (redfishagent.InBandRun, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.updates = append(h.updates, u)
	r := &hostRun{h: h, u: u}
	_, err := u.State.Load(&r.state)
	return r, err
}

// HostReady notes that it was asked.
func (h *hostTools) HostReady(_ context.Context, _ *agent.Task, progress func(string)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	progress("Waiting for the host operating system (attempt 1)")
	h.ready = append(h.ready, time.Now())
	return nil
}

type hostRun struct {
	h     *hostTools
	u     redfishagent.InBandUpdate
	state struct {
		Flashed, Verified bool
	}
}

// Stages are one before and one behind the activation.
func (r *hostRun) Stages(suffix string) (before, after []agent.Stage) {
	return []agent.Stage{{
			Name: "flash" + suffix, Description: "Flashing", Resume: agent.Once, Run: r.flash,
			Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedNotStarted, nil },
		}}, []agent.Stage{{Name: "verify" + suffix, Description: "Verifying", Resume: agent.Repeatable, Run: func(context.Context) error {
			if !r.state.Flashed {
				return agent.Skip("nothing was flashed")
			}
			r.state.Verified = true
			return r.u.State.Set(r.state)
		}}}
}

func (r *hostRun) flash(ctx context.Context) error {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	r.h.content = map[string]string{}
	for _, i := range r.u.Images {
		f, err := i.Open(ctx)
		if err != nil {
			return err
		}
		data, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		r.h.content[i.Device+"/"+i.Name] = string(data)
		if err := f.Close(); err != nil {
			return err
		}
	}
	if r.h.nothing {
		return nil
	}
	r.h.flashed = append(r.h.flashed, time.Now())
	r.state.Flashed = true
	return r.u.State.Save(ctx, r.state)
}

// Applied reports whether it was flashed.
func (r *hostRun) Applied() bool { return r.state.Flashed }

// Outcome tells how it went.
func (r *hostRun) Outcome() redfishagent.InBandOutcome {
	o := redfishagent.InBandOutcome{Message: "2 devices flashed", Details: json.RawMessage(`{"devices":[]}`)}
	if r.h.nothing {
		o.Skipped = "every device has its version"
	}
	if r.state.Verified {
		o.Check = json.RawMessage(`{"status":"matched"}`)
	}
	return o
}

func (b *bench) withHost() {
	b.node.Host = b.Target(agenttest.Device{
		RackID: b.rack.ID(), NodeID: b.tray.ID(), Type: b.tray.NodeType(), IP: "127.0.0.1", Port: 22, User: "u", Password: "host-pw",
	}).GetBmc()
}

func names(stages []job.Stage) []string {
	var out []string
	for _, s := range stages {
		if s.Status == job.StageCompleted {
			out = append(out, s.Name)
		}
	}
	return out
}

// Network devices go first, with an activation of their own; then the packages for
// the controllers.
func TestMixedUpdate(t *testing.T) {
	b := newBench(t)
	b.withHost()
	tools := &hostTools{}
	b.node.InventoryProfile = "p"
	b.Start(func(o *agenttest.AgentOptions) {
		o.InBand = tools
		o.Profiles = map[string]redfishagent.InventoryProfile{"p": {FlintDevices: map[string]int{"cx7": 4}}}
	})
	u := activated(b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"), b.File("CX7", "cx7.bin", []byte("seven")), b.File("BF3_NIC", "bf3.pldm", []byte("three")))
	u.Mixed, u.Force = true, true
	j := b.run(u)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{
		"flash_in_band", "activate_in_band_aux_cycle", "activate_in_band_aux_settle", "activate_in_band_power_on", "activate_in_band_wait_on",
		"verify_in_band", "check_3", "upload_3", "install_3", "activate_out_of_band_aux_cycle", "activate_out_of_band_aux_settle",
		"activate_out_of_band_power_on", "activate_out_of_band_wait_on", "host_ready_out_of_band", "verify_out_of_band",
	}, names(j.Stages))
	require.Equal(t, map[string]string{"cx7/cx7.bin": "seven", "bf3_nic/bf3.pldm": "three"}, tools.content)
	require.Equal(t, map[string]int{"cx7": 4}, tools.updates[0].Counts)
	require.True(t, tools.updates[0].Force)
	require.Len(t, tools.flashed, 1)
	require.Len(t, tools.ready, 1)
	cycles := b.rack.Requests(b.tray.ID(), reqlog.Filter{Path: "**/" + auxReset, Method: "POST"})
	require.Len(t, cycles, 2)
	require.True(t, tools.flashed[0].Before(cycles[0].Time))
	require.True(t, cycles[0].End().Before(b.uploads()[0].Time))
	result := decode(t, j.ResultJSON)
	require.InDelta(t, 3, result["targets_completed"], 0)
	first := result["targets"].([]any)[0].(map[string]any)
	require.Equal(t, "CX7", first["component"])
	require.Equal(t, map[string]any{"devices": []any{}}, first["nvfwupd_summary"].(map[string]any)["details"])
	require.Len(t, result["post_activation_version_check"].(map[string]any)["stages"], 2)
}

// Devices that have their version are not taken down for nothing.
func TestInBandUpToDate(t *testing.T) {
	b := newBench(t)
	b.withHost()
	b.Start(func(o *agenttest.AgentOptions) { o.InBand = &hostTools{nothing: true} })
	j := b.run(activated(b.File("CX8", "cx8.bin", []byte("x"))))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "already_up_to_date", decode(t, j.ResultJSON)["status"])
	require.Zero(t, b.posts(auxReset))
}

// The next agent goes on with what the run has learned.
func TestAgentDiesBetweenTheGroups(t *testing.T) {
	b := newBench(t)
	b.withHost()
	tools := &hostTools{}
	with := func(o *agenttest.AgentOptions) { o.InBand = tools }
	doomed := b.StartDoomed(redfishagent.FailInStage+"check_2", 1, with)
	u := activated(b.File("CX7", "cx7.bin", []byte("seven")), b.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC"))
	u.Mixed = true
	id := b.Admit(b.node, u)
	b.died(doomed, id)
	b.Start(with)
	j := b.Await(id)
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(t, tools.flashed, 1)
	require.Equal(t, 2, b.posts(auxReset))
	require.Contains(t, j.ResultJSON, "2 devices flashed")
}

func TestInBandIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tools redfishagent.InBand
		host  bool
		text  string
	}{
		"no tools": {nil, true, "cannot be flashed by this agent"},
		"no host":  {&hostTools{}, false, "need a host endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if tt.host {
				b.withHost()
			}
			b.Start(func(o *agenttest.AgentOptions) { o.InBand = tt.tools })
			j := b.run(activated(&rackbusv1.FirmwareUpdateTarget{Component: "CX7", File: "cx7.bin"}))
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, "planning", j.Failure.Phase)
			require.Contains(t, j.Failure.Message, tt.text)
			require.Empty(t, b.rack.Requests("", anyWrite))
		})
	}
}

// powerTools use the power that they are given, and flash nothing.
type powerTools struct {
	hostTools
	states []string
	read   func() string
}

// Begin takes a group.
func (p *powerTools) Begin(u redfishagent.InBandUpdate) (redfishagent.InBandRun, error) {
	return &powerRun{hostRun{h: &p.hostTools, u: u}, p}, nil
}

type powerRun struct {
	hostRun
	p *powerTools
}

// Stages are one that switches.
func (r *powerRun) Stages(suffix string) (before, after []agent.Stage) {
	return []agent.Stage{{Name: "discover" + suffix, Description: "Switching", Resume: agent.Repeatable, Run: func(ctx context.Context) error {
		if err := r.u.Power.EnsureOn(ctx); err != nil {
			return err
		}
		r.p.states = append(r.p.states, r.p.read())
		return r.u.Power.AuxCycle(ctx)
	}}}, nil
}

// Network devices are not brought into force, nor the host recovered, while the tray is
// being updated by somebody else: the AUX cycle would break what is written.
func TestInBandBesideAForeignUpdate(t *testing.T) {
	t.Parallel()
	for name, tools := range map[string]func(*bench) redfishagent.InBand{
		"activation": func(*bench) redfishagent.InBand { return &hostTools{} },
		"recovery": func(b *bench) redfishagent.InBand {
			return &powerTools{hostTools: hostTools{nothing: true}, read: func() string { return b.tray.PowerState() }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.withHost()
			b.Start(func(o *agenttest.AgentOptions) { o.InBand = tools(b) })
			b.knobs(func(k *bmc.Knobs) { k.RunningTask = "HGX_77" })
			j := b.run(activated(b.File("CX8", "cx8.bin", []byte("x"))))
			require.Equal(t, job.FailureUpdateAlreadyRunning, j.Failure.FailureCode, "%+v", j.Failure)
			require.Contains(t, j.Failure.Message, "HGX_77")
			require.Zero(t, b.posts(auxReset)+b.posts(hostReset))
			b.knobs(func(k *bmc.Knobs) { k.RunningTask, k.RunningTaskState = "77", "Completed" })
			require.Equal(t, job.StateCompleted, b.run(activated(b.File("CX8", "cx8.bin", []byte("x")))).State)
		})
	}
}

// The host's power is in the hands of its BMC.
func TestHostPower(t *testing.T) {
	b := newBench(t)
	b.withHost()
	tools := &powerTools{hostTools: hostTools{nothing: true}, read: func() string { return b.tray.PowerState() }}
	b.Start(func(o *agenttest.AgentOptions) { o.InBand = tools })
	require.Nil(t, b.Ask(b.node, redfishagent.OpPowerSet, operation(redfish.PowerForceOff)).GetError())
	j := b.run(activated(b.File("CX8", "cx8.bin", []byte("x"))))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, []string{bmc.PowerOn}, tools.states)
	require.Equal(t, 1, b.posts(auxReset))
	require.Equal(t, bmc.PowerOn, b.tray.PowerState())
}
