// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/flint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/pkg/ssh"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/host"
)

const (
	psidCX7, psidBF3 = "MT_0000001069", "MT_0000001070"
	before           = "28.39.1002"
	after            = "28.40.2000"
	allFiles         = ""
)

// hostBench is a tray with its host operating system.
type hostBench struct {
	*bench
	host  *host.Server
	flint *flint.Flint
	known string
	log   *syncBuffer
}

func flintTiming() flint.Timing {
	const tick = 10 * time.Millisecond
	return flint.Timing{
		Probe: 5 * time.Second, ReadyInterval: 2 * tick, ReadyAttempts: 100, ReadyLimit: 3 * time.Second,
		Query: 5 * time.Second, Upload: 10 * time.Second, Flash: 10 * time.Second, FlashPoll: tick,
		VerifyInterval: tick, VerifyAttempts: 3, Clean: 5 * time.Second,
		SSH: ssh.Timing{
			Connect: 5 * time.Second, Handshake: 5 * time.Second, Login: 5 * time.Second, KeepAlive: 5 * time.Second,
			Session: 5 * time.Second, UploadStall: 10 * time.Second, Close: 100 * time.Millisecond,
		},
	}
}

func newHostBench(t *testing.T, change ...func(*host.Options)) *hostBench {
	t.Helper()
	h := &hostBench{log: &syncBuffer{}}
	h.bench = newBench(t, func(o *sim.Options) {
		o.HostEndpoint = func(tray *sim.Device) (*sim.HostEndpoint, error) {
			ho := host.Options{Machine: tray, Boot: 30 * time.Millisecond, Flash: 30 * time.Millisecond, Poll: 5 * time.Millisecond}
			for _, c := range change {
				c(&ho)
			}
			var err error
			if h.host, err = host.Start(ho); err != nil {
				return nil, err
			}
			t.Cleanup(func() { require.NoError(t, h.host.Close()) })
			return &sim.HostEndpoint{
				Address: h.host.Address(), Port: h.host.Port(), Username: h.host.Username(), Password: h.host.Password(),
			}, nil
		}
	})
	h.node = h.hostTarget(h.host.Password())
	h.known = filepath.Join(t.TempDir(), "known_hosts")
	keys, err := ssh.OpenHostKeys(ssh.PolicyTrustOnFirstUse, h.known, slog.New(slog.NewTextHandler(h.log, nil)))
	require.NoError(t, err)
	h.flint, err = flint.New(flint.Options{HostKeys: keys, Timing: flintTiming()})
	require.NoError(t, err)
	return h
}

func (h *hostBench) hostTarget(password string) *rackbusv1.NodeTarget {
	d := h.tray
	return h.Target(agenttest.Device{
		RackID: h.rack.ID(), NodeID: d.ID(), Type: d.NodeType(), IP: d.IP(), Port: d.Port(),
		User: d.Username(), Password: d.Password(),
		Host: &agenttest.Host{IP: h.host.Address(), Port: h.host.Port(), User: h.host.Username(), Password: password},
	})
}

// inBand gives an agent the means to flash.
func (h *hostBench) inBand(o *agenttest.AgentOptions) {
	o.InBand = h.flint
	o.Profiles = map[string]redfishagent.InventoryProfile{"full": {FlintDevices: map[string]int{"cx7": 2, "bf3_nic": 1}}}
}

func (h *hostBench) start(change ...func(*agenttest.AgentOptions)) *agenttest.Agent {
	return h.Start(append([]func(*agenttest.AgentOptions){h.inBand}, change...)...)
}

func (h *hostBench) image(component, name, psid, version string) *rackbusv1.FirmwareUpdateTarget {
	return h.File(component, name, host.BuildImage(psid, version, 300<<10))
}

// nics are images for every device of the host.
func (h *hostBench) nics() *rackbusv1.FirmwareUpdate {
	return activated(h.image("CX7", "cx7.signed.reduced.bin", psidCX7, after), h.image("BF3_NIC", "bf3.bin", psidBF3, "32.40.1"))
}

// flashes are how often each device was written.
func (h *hostBench) flashes() []int {
	var out []int
	for _, p := range h.host.Paths() {
		out = append(out, h.host.Flashes(p))
	}
	return out
}

func (h *hostBench) versions() []string {
	var out []string
	for _, p := range h.host.Paths() {
		out = append(out, h.host.Version(p))
	}
	return out
}

func (h *hostBench) requireFlashed(j agenttest.Job) {
	h.t.Helper()
	require.Equal(h.t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(h.t, []string{after, after, "32.40.1"}, h.versions())
	require.Equal(h.t, []int{1, 1, 1}, h.flashes())
	require.Empty(h.t, h.host.Files())
}

// syncBuffer is a buffer for the log of several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestFlint(t *testing.T) {
	h := newHostBench(t)
	h.start()
	h.node.InventoryProfile = "full"
	id := h.Admit(h.node, h.nics())
	j := h.Await(id)
	h.requireFlashed(j)
	require.Equal(t, 1, h.posts(auxReset), "the activation's own")

	result := decode(t, j.ResultJSON)
	require.Equal(t, "completed", result["status"])
	require.Equal(t, true, result["activated"])
	details := result["targets"].([]any)[0].(map[string]any)["nvfwupd_summary"].(map[string]any)["details"].(map[string]any)
	require.Equal(t, "completed", details["status"])
	require.Equal(t, false, details["force_update"])
	require.Len(t, details["devices"], 3)
	require.Equal(t, map[string]any{
		"component": "CX7", "device": h.host.Paths()[0], "psid": psidCX7, "previous_version": before,
		"expected_version": after, "firmware_file": "cx7.signed.reduced.bin",
	}, details["devices"].([]any)[0])
	check := result["post_activation_version_check"].(map[string]any)
	require.Equal(t, "matched", check["status"])
	require.Len(t, check["devices"], 3)

	// The commands are those of NVIDIA's tool, to the letter.
	path := h.host.Paths()[0]
	for _, line := range []string{
		"command -v mst && command -v flint", "sudo -S mst start 2>/dev/null", "sudo -S mst status -v 2>/dev/null",
		"sudo -S flint -d '" + path + "' --yes query 2>/dev/null", "mktemp -d /tmp/nvfwupd-flint.XXXXXX",
	} {
		require.NotEmpty(t, h.host.Log(line), line)
	}
	burn := h.host.Log(" b 2>/dev/null")
	require.Len(t, burn, 3)
	require.Regexp(t, `^sudo -S flint -d '/dev/mst/mt[0-9]+_pciconf[0-9]' --yes -i '/tmp/nvfwupd-flint\.\w{6}/[a-z0-9.]+\.bin' b 2>/dev/null$`, burn[0].Command)
	require.Regexp(t, `^rm -rf -- '/tmp/nvfwupd-flint\.\w{6}'$`, h.host.Log("rm -rf")[0].Command)

	// Secrets are nowhere.
	for _, e := range h.host.Log(allFiles) {
		require.NotContains(t, e.Command, h.host.Password())
	}
	require.NotContains(t, j.ResultJSON, h.host.Password())
	require.NotContains(t, h.log.String(), h.host.Password())
	require.Contains(t, h.log.String(), "host key recorded")

	t.Run("nothing left to do", func(t *testing.T) {
		again := h.run(h.nics())
		require.Equal(t, job.StateCompleted, again.State, "%+v", again.Failure)
		result := decode(t, again.ResultJSON)
		require.Equal(t, "already_up_to_date", result["status"])
		require.Equal(t, []int{1, 1, 1}, h.flashes())
		require.Equal(t, 1, h.posts(auxReset), "nothing is activated")
	})
	t.Run("forced", func(t *testing.T) {
		u := h.nics()
		u.Force = true
		forced := h.run(u)
		require.Equal(t, job.StateCompleted, forced.State, "%+v", forced.Failure)
		require.Equal(t, []int{2, 2, 2}, h.flashes())
	})
}

// What is wrong with a host is told by a code, and nothing is flashed.
func TestFlintRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		faults func(*hostBench) host.Faults
		change func(*hostBench, *rackbusv1.FirmwareUpdate)
		code   job.FailureCode
		text   string
		aux    int
	}{
		"wrong password": {
			change: func(h *hostBench, _ *rackbusv1.FirmwareUpdate) { h.node = h.hostTarget("wr0ng") },
			code:   job.FailureHostAuthFailed, text: "credentials rejected",
		},
		"no tools": {
			faults: func(*hostBench) host.Faults { return host.Faults{NoTools: true} },
			code:   job.FailureHostToolsMissing, text: "mst and flint have to be installed",
		},
		"sudo wants another password": {
			faults: func(*hostBench) host.Faults { return host.Faults{SudoPassword: "other"} },
			code:   job.FailurePreconditionFailed, text: "start the mst driver",
		},
		"no image for a device": {
			change: func(h *hostBench, u *rackbusv1.FirmwareUpdate) {
				u.Targets[1] = h.image("BF3_NIC", "other.bin", "MT_0000009999", "32.40.1")
			},
			code: job.FailureIncompatibleFirmware, text: psidBF3,
		},
		"two versions for a device": {
			change: func(h *hostBench, u *rackbusv1.FirmwareUpdate) {
				u.Targets = append(u.Targets, h.image("CX7", "second.pldm", psidCX7, "28.41.1"))
			},
			code: job.FailureIncompatibleFirmware, text: "second.pldm",
		},
		"not an image": {
			change: func(h *hostBench, u *rackbusv1.FirmwareUpdate) {
				u.Targets[0] = h.File("CX7", "rubbish.bin", []byte("rubbish"))
			},
			code: job.FailurePreconditionFailed, text: "rubbish.bin",
		},
		"a device is missing for good": {
			faults: func(h *hostBench) host.Faults { return host.Faults{Hidden: h.host.Paths()[:1]} },
			change: func(h *hostBench, _ *rackbusv1.FirmwareUpdate) { h.node.InventoryProfile = "full" },
			code:   job.FailureTargetNotFound, text: "1 of cx7 found, the profile says 2", aux: 1,
		},
		"host stays in maintenance": {
			faults: func(*hostBench) host.Faults { return host.Faults{SystemState: "maintenance"} },
			code:   job.FailureHostUnreachable, text: `"maintenance"`, aux: 1,
		},
		"host stays away": {
			faults: func(*hostBench) host.Faults { return host.Faults{Unreachable: true} },
			code:   job.FailureHostUnreachable, text: "not ready", aux: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostBench(t)
			timing := flintTiming()
			timing.ReadyAttempts = 5
			h.restart(timing)
			h.start()
			u := h.nics()
			if tt.faults != nil {
				h.host.SetFaults(tt.faults(h))
			}
			if tt.change != nil {
				tt.change(h, u)
			}
			j := h.run(u)
			require.Equal(t, job.StateFailed, j.State)
			require.Equal(t, tt.code, j.Failure.FailureCode, "%+v", j.Failure)
			require.Contains(t, j.Failure.Message, tt.text)
			require.Equal(t, []int{0, 0, 0}, h.flashes())
			require.Equal(t, tt.aux, h.posts(auxReset))
			require.Empty(t, h.host.Files())
			if name == "wrong password" {
				require.Equal(t, []string{"refused"}, h.host.Logins(), "one attempt, no retries")
				require.Equal(t, job.CodeUnauthenticated, j.Failure.Code)
			}
		})
	}
}

func (h *hostBench) restart(timing flint.Timing) {
	h.t.Helper()
	keys, err := ssh.OpenHostKeys(ssh.PolicyTrustOnFirstUse, h.known, nil)
	require.NoError(h.t, err)
	h.flint, err = flint.New(flint.Options{HostKeys: keys, Timing: timing})
	require.NoError(h.t, err)
}

// What a host does wrong for a while does not fail the update.
func TestFlintRecovers(t *testing.T) {
	for name, tt := range map[string]struct {
		faults func(*hostBench) host.Faults
		change func(*hostBench)
		aux    int
		flash  []int
	}{
		"host is off":                    {change: func(h *hostBench) { h.tray.SetPowerState("Off") }, aux: 1},
		"degraded counts as ready":       {faults: func(*hostBench) host.Faults { return host.Faults{SystemState: "degraded"} }, aux: 1},
		"unreachable until an AUX cycle": {faults: func(*hostBench) host.Faults { return host.Faults{UnreachableUntilAUX: true} }, aux: 2},
		"a device is back after the AUX cycle": {faults: func(h *hostBench) host.Faults {
			return host.Faults{Hidden: h.host.Paths()[2:], HiddenUntilAUX: true}
		}, aux: 2},
		"the running version is shown too": {faults: func(*hostBench) host.Faults { return host.Faults{ShowRunning: true} }, aux: 1},
		"one device fails once": {faults: func(h *hostBench) host.Faults {
			return host.Faults{FlashFailures: map[string]int{h.host.Paths()[1]: 1}}
		}, aux: 1},
		"already written, pending reset": {faults: func(h *hostBench) host.Faults {
			return host.Faults{FlashPending: h.host.Paths()[:1]}
		}, aux: 1},
		"upload is cut": {faults: func(*hostBench) host.Faults {
			return host.Faults{Commands: []host.CommandFault{{Match: "flint -i", Remaining: 1, Cut: true}}}
		}, aux: 1},
		"the answer of a flash is lost": {faults: func(*hostBench) host.Faults {
			return host.Faults{Commands: []host.CommandFault{{Match: "pciconf1' --yes -i", Remaining: 1, Cut: true, Do: true}}}
		}, aux: 1, flash: []int{1, 1, 1}},
		"a flash was never begun": {faults: func(*hostBench) host.Faults {
			return host.Faults{Commands: []host.CommandFault{{Match: "pciconf1' --yes -i", Remaining: 1, Cut: true}}}
		}, aux: 1, flash: []int{1, 1, 1}},
		"no process list": {faults: func(*hostBench) host.Faults {
			return host.Faults{NoProcessList: true, Commands: []host.CommandFault{{Match: "pciconf0' --yes -i", Remaining: 1, Cut: true}}}
		}, aux: 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostBench(t)
			timing := flintTiming()
			if tt.aux > 1 {
				timing.ReadyAttempts = 5
			}
			h.restart(timing)
			h.start()
			h.node.InventoryProfile = "full"
			if tt.faults != nil {
				h.host.SetFaults(tt.faults(h))
			}
			if tt.change != nil {
				tt.change(h)
			}
			j := h.run(h.nics())
			require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(t, []string{after, after, "32.40.1"}, h.versions())
			require.Equal(t, tt.aux, h.posts(auxReset))
			if tt.flash != nil {
				require.Equal(t, tt.flash, h.flashes())
			}
		})
	}
}

func TestFlintFails(t *testing.T) {
	t.Run("a device fails twice", func(t *testing.T) {
		h := newHostBench(t)
		h.start()
		h.host.SetFaults(host.Faults{FlashFailures: map[string]int{h.host.Paths()[1]: -1}})
		j := h.run(h.nics())
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureFlashFailed, j.Failure.FailureCode, "%+v", j.Failure)
		require.Contains(t, j.Failure.Message, "Flash write failed")
		require.Contains(t, j.Failure.Message, "in force after the next power cycle: "+h.host.Paths()[0])
		require.Equal(t, []int{1, 0, 1}, h.flashes())
		require.Len(t, h.host.Log("pciconf1' --yes -i"), 2)
		require.Zero(t, h.posts(auxReset))
		require.Empty(t, h.host.Files())
	})
	t.Run("other versions after the activation", func(t *testing.T) {
		h := newHostBench(t)
		h.start()
		h.host.SetFaults(host.Faults{VersionsUnchanged: true})
		j := h.run(h.nics())
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureVersionMismatch, j.Failure.FailureCode, "%+v", j.Failure)
		require.Contains(t, j.Failure.Message, "expected "+after+", found "+before)
		require.Equal(t, 1, h.posts(auxReset), "never a recovery after a flash")
	})
	t.Run("host does not come back", func(t *testing.T) {
		h := newHostBench(t)
		timing := flintTiming()
		timing.ReadyAttempts = 5
		h.restart(timing)
		h.start()
		id := h.Admit(h.node, h.nics())
		h.AwaitStage(id, "activate_aux_cycle")
		h.host.SetFaults(host.Faults{Unreachable: true})
		j := h.Await(id)
		require.Equal(t, job.StateFailed, j.State)
		require.Equal(t, job.FailureHostUnreachable, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, 1, h.posts(auxReset))
	})
	t.Run("BF3_BFB and no activation", func(t *testing.T) {
		h := newHostBench(t)
		h.start()
		j := h.run(activated(h.image("BF3_BFB", "x.bin", psidBF3, "1")))
		require.Equal(t, job.FailurePreconditionFailed, j.Failure.FailureCode)
		j = h.run(update(h.image("CX7", "x.bin", psidCX7, "1")))
		require.Equal(t, job.FailurePreconditionFailed, j.Failure.FailureCode)
		require.Empty(t, h.host.Log(allFiles))
	})
	t.Run("host key has changed", func(t *testing.T) {
		h := newHostBench(t)
		h.start()
		require.Equal(t, job.StateCompleted, h.run(h.nics()).State)
		require.NoError(t, h.host.NewHostKey())
		u := h.nics()
		u.Force = true
		j := h.run(u)
		require.Equal(t, job.FailureHostKeyRefused, j.Failure.FailureCode, "%+v", j.Failure)
		require.Equal(t, []int{1, 1, 1}, h.flashes())
	})
}

// In-band images beside others: they go first, with an activation of their own.
func TestFlintMixed(t *testing.T) {
	h := newHostBench(t)
	h.start()
	u := h.nics()
	u.Targets = append([]*rackbusv1.FirmwareUpdateTarget{h.pldm("nvfw_P4972_9.fwpkg", "99.01", "BMC")}, u.Targets...)
	u.Mixed = true
	j := h.run(u)
	h.requireFlashed(j)
	require.Equal(t, "99.01", h.tray.Version("FW_BMC_0"))
	require.Equal(t, 2, h.posts(auxReset))
	last := h.host.Log(" b 2>/dev/null")[2].At
	require.True(t, h.uploads()[0].Time.After(last), "the network devices go first")
	raw, err := json.Marshal(decode(t, j.ResultJSON)["post_activation_version_check"])
	require.NoError(t, err)
	require.Contains(t, string(raw), `"stages"`)
}
