// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func operation(op redfish.PowerOp) func(*rackbusv1.NodeRequest) {
	return func(r *rackbusv1.NodeRequest) { r.PowerOperation = int32(op) }
}

// With a BMC a switch does what every tray does.
func TestPowerWithBMC(t *testing.T) {
	b := newBench(t)
	b.node = b.target(false)
	b.start(nil)
	require.Equal(t, "ON", b.Ask(b.node, switchagent.OpPowerGet).GetPowerState())
	for _, p := range []struct {
		op    redfish.PowerOp
		reset string
		after string
	}{
		{redfish.PowerForceOff, "ForceOff", "OFF"},
		{redfish.PowerOn, "On", "ON"},
		{redfish.PowerOff, "GracefulShutdown", "OFF"},
		{redfish.PowerForceOn, "ForceOn", "ON"},
		{redfish.PowerGracefulShutdown, "GracefulShutdown", "OFF"},
		{redfish.PowerReset, "PowerCycle", "ON"},
		{redfish.PowerGracefulRestart, "GracefulRestart", "ON"},
		{redfish.PowerForceRestart, "ForceRestart", "ON"},
	} {
		reply := b.Ask(b.node, switchagent.OpPowerSet, operation(p.op))
		require.Nil(t, reply.GetError(), "%s: %v", p.op, reply.GetError())
		require.Equal(t, p.after, b.Ask(b.node, switchagent.OpPowerGet).GetPowerState(), p.op)
	}
	require.Len(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}), 8)
	reply := b.Ask(b.node, switchagent.OpPowerSet, operation(99))
	require.Equal(t, agent.CodeInvalidArgument, reply.GetError().GetCode())
	require.Len(t, b.sw.Requests(reqlog.Filter{Protocol: reqlog.Redfish, Method: "POST"}), 8)

	b.sw.UpdateKnobs(func(k *nvswitch.Knobs) { k.PowerReported = "PoweringOn" })
	require.Equal(t, "UNKNOWN", b.Ask(b.node, switchagent.OpPowerGet).GetPowerState())
}

// Without one it can be power-cycled, and read only as far as its operating system
// tells.
func TestPowerWithoutBMC(t *testing.T) {
	b := newBench(t)
	b.start(nil)
	require.Equal(t, "ON", b.Ask(b.node, switchagent.OpPowerGet).GetPowerState())
	for op := redfish.PowerOff; op <= redfish.PowerForceRestart; op++ {
		if op == redfish.PowerReset {
			continue
		}
		reply := b.Ask(b.node, switchagent.OpPowerSet, operation(op))
		require.Equal(t, agent.CodeInvalidArgument, reply.GetError().GetCode(), op)
		require.Contains(t, reply.GetError().GetMessage(), "without a BMC")
	}
	require.Zero(t, b.actions("@power-cycle"))
	require.Nil(t, b.Ask(b.node, switchagent.OpPowerSet, operation(redfish.PowerReset)).GetError())
	require.Equal(t, 1, b.actions("@power-cycle"))
}

// Only a connection that certainly could not be made is called unreachable.
func TestUnreachableIsEvidence(t *testing.T) {
	t.Parallel()
	t.Run("bmc refuses", func(t *testing.T) {
		b := newBench(t)
		b.node = b.target(false)
		b.node.Bmc.Port = 1
		b.start(nil)
		require.Equal(t, agent.CodeUnreachable, b.Ask(b.node, switchagent.OpPowerGet).GetError().GetCode())
	})
	t.Run("nvue refuses", func(t *testing.T) {
		b := newBench(t)
		b.node.Host.Port = 1
		b.start(nil)
		for _, op := range []string{switchagent.OpPowerGet, switchagent.OpNVOSHello, switchagent.OpFirmwareInventory} {
			require.Equal(t, agent.CodeUnreachable, b.Ask(b.node, op).GetError().GetCode(), op)
		}
	})
	t.Run("nvue answers garbage", func(t *testing.T) {
		b := newBench(t, func(o *nvswitch.Options) { o.Knobs.Garbage = []string{"nvue"} })
		b.start(nil)
		require.Equal(t, "unavailable", b.Ask(b.node, switchagent.OpPowerGet).GetError().GetCode())
	})
	t.Run("nvue refuses the password", func(t *testing.T) {
		b := newBench(t)
		b.sw.SetUser("admin", "another", false)
		b.start(nil)
		require.Equal(t, "UNKNOWN", b.Ask(b.node, switchagent.OpPowerGet).GetPowerState())
		require.Equal(t, "unauthenticated", b.Ask(b.node, switchagent.OpNVOSHello).GetError().GetCode())
	})
}

func TestReads(t *testing.T) {
	b := newBench(t)
	b.start(nil)
	require.Nil(t, b.Ask(b.node, switchagent.OpNVOSHello).GetError())

	info := b.Ask(b.node, switchagent.OpDeviceInfo).GetDeviceInfo()
	require.EqualValues(t, 1700000000001, info.GetChassisSn())
	require.EqualValues(t, 1, info.GetSlotNumber())
	require.EqualValues(t, 0, info.GetTrayIndex())
	require.NotNil(t, info.TrayIndex)

	versions, updateable := map[string]string{}, map[string]bool{}
	firmware := b.Ask(b.node, switchagent.OpFirmwareInventory).GetFirmware()
	for _, f := range firmware {
		versions[f.GetName()], updateable[f.GetName()] = f.GetVersion(), f.GetUpdateable()
	}
	require.Equal(t, map[string]bool{
		"ASIC": false, "BIOS": true, "BMC": true, "CPLD1": true, "EROT": true, "FPGA": true, "SSD": false, "TRANSCEIVER": true, "NVOS": true,
	}, updateable)
	require.Equal(t, b.sw.Version("BMC"), versions["BMC"])
	require.Equal(t, oldBuild, versions["NVOS"])
	require.Equal(t, "NVOS", firmware[len(firmware)-1].GetName())
	require.Equal(t, "OK", firmware[0].GetHealth())

	var entry map[string]any
	list := func(component string) *rackbusv1.NodeReply {
		return b.Ask(b.node, switchagent.OpListSwitchFirmware, func(r *rackbusv1.NodeRequest) {
			r.SwitchOperation = &rackbusv1.NodeRequest_SwitchFirmware{SwitchFirmware: &rackbusv1.SwitchFirmwareRequest{Component: component}}
		})
	}
	for component, row := range map[string]string{"BMC": "BMC", "FPGA": "FPGA", "EROT": "EROT", "CPLD": "CPLD1", "BIOS": "BIOS", "TRANSCEIVER": "TRANSCEIVER"} {
		require.NoError(t, json.Unmarshal([]byte(list(component).GetResultJson()), &entry), component)
		require.Equal(t, b.sw.Version(row), entry["actual-firmware"], component)
	}
	for _, component := range []string{"", "SMA", "BMC/files"} {
		require.Equal(t, agent.CodeInvalidArgument, list(component).GetError().GetCode(), component)
	}

	require.NoError(t, b.sw.WriteFile("/host/nos-images/nvos-1.2.3.bin", []byte("x")))
	require.Contains(t, b.Ask(b.node, switchagent.OpListSwitchImages).GetResultJson(), "nvos-1.2.3.bin")
}

// Errors of the switch are told with their class.
func TestReadsRefused(t *testing.T) {
	t.Parallel()
	for status, code := range map[int]string{404: "not_found", 401: "unauthenticated", 500: "internal", 503: "unavailable", 409: "failed_precondition"} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			b := newBench(t, func(o *nvswitch.Options) {
				o.Faults = &faults.Set{}
				for _, path := range []string{"/nvue_v1/platform/**", "/nvue_v1/system/image/**"} {
					_, err := o.Faults.Add(faults.Rule{Selector: faults.Resource(path), Action: faults.Action{Status: &faults.Status{Code: status}}})
					require.NoError(t, err)
				}
			})
			b.start(nil)
			for _, op := range []string{switchagent.OpDeviceInfo, switchagent.OpListSwitchImages, switchagent.OpListSwitchFirmware} {
				reply := b.Ask(b.node, op, func(r *rackbusv1.NodeRequest) {
					r.SwitchOperation = &rackbusv1.NodeRequest_SwitchFirmware{SwitchFirmware: &rackbusv1.SwitchFirmwareRequest{Component: "BMC"}}
				})
				require.Equal(t, code, reply.GetError().GetCode(), "%s: %s", op, reply.GetError().GetMessage())
			}
		})
	}
}

// A node that is no switch, and addresses that no switch has, are refused before
// anything is sent.
func TestTargetsAreRefused(t *testing.T) {
	b := newBench(t)
	b.start(nil, func(o *switchagent.Options) { o.Device.Targets = node.TargetPolicy{} })
	reply := b.Ask(b.node, switchagent.OpNVOSHello)
	require.Equal(t, agent.CodeInvalidArgument, reply.GetError().GetCode())
	require.Contains(t, reply.GetError().GetMessage(), "not allowed")
	b.node.NodeType = "compute_gb200_nvidia"
	require.Contains(t, b.Ask(b.node, switchagent.OpNVOSHello).GetError().GetMessage(), "does not drive")
	require.Empty(t, b.sw.Requests(reqlog.Filter{}))
}

func TestPush(t *testing.T) {
	t.Parallel()
	push := func(b *bench, change ...func(*rackbusv1.SwitchFirmwareRequest)) *rackbusv1.NodeReply {
		content := []byte(strings.Repeat("firmware ", 1000))
		f := b.File("BMC", "fw.fwpkg", content)
		p := &rackbusv1.SwitchFirmwareRequest{
			Component: "BMC", Filename: "bmc_1.fwpkg", File: f.GetFile(), SizeBytes: f.GetSizeBytes(), Sha256: f.GetSha256(),
		}
		for _, c := range change {
			c(p)
		}
		return b.Ask(b.node, switchagent.OpPushSwitchFirmware, func(r *rackbusv1.NodeRequest) {
			r.SwitchOperation = &rackbusv1.NodeRequest_SwitchFirmware{SwitchFirmware: p}
		})
	}
	const at = "/host/fw-images/bmc/bmc_1.fwpkg"
	t.Run("sent once", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		require.Nil(t, push(b).GetError())
		got, err := b.sw.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("firmware ", 1000), string(got))
		require.Len(t, b.puts(), 1)
		require.Nil(t, push(b).GetError())
		require.Len(t, b.puts(), 1, "it was there")
		require.Zero(t, b.actions("@install"))
		require.Equal(t, []string{at}, b.sw.Files("/host/fw-images"))
	})
	t.Run("equal size is not equal content", func(t *testing.T) {
		b := newBench(t)
		require.NoError(t, b.sw.WriteFile(at, []byte(strings.Repeat("somewhat ", 1000))))
		b.start(nil)
		require.Nil(t, push(b).GetError())
		require.Len(t, b.puts(), 1)
		got, err := b.sw.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("firmware ", 1000), string(got))
	})
	t.Run("goes on where it was cut", func(t *testing.T) {
		b := newBench(t)
		content := []byte(strings.Repeat("0123456789abcdef", 1<<18)) // 4 MiB: more than what may be under way
		f := b.File("BMC", "big.fwpkg", content)
		big := func(p *rackbusv1.SwitchFirmwareRequest) {
			p.File, p.SizeBytes, p.Sha256 = f.GetFile(), f.GetSizeBytes(), f.GetSha256()
		}
		b.sw.UpdateKnobs(func(k *nvswitch.Knobs) { k.SFTP.CutAfter, k.SFTP.Cuts = 3<<20, 1 })
		b.start(nil)
		reply := push(b, big)
		require.Equal(t, "unavailable", reply.GetError().GetCode(), "%v", reply.GetError())
		require.Nil(t, push(b, big).GetError())
		puts := b.puts()
		require.Less(t, puts[len(puts)-1].Bytes, int64(len(content)))
		got, err := b.sw.ReadFile(at)
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(content), sha256.Sum256(got))
	})
	for name, tt := range map[string]struct {
		change func(*rackbusv1.SwitchFirmwareRequest)
		knobs  func(*nvswitch.Knobs)
		code   string
		text   string
	}{
		"bad name":      {change: func(p *rackbusv1.SwitchFirmwareRequest) { p.Filename = "../x" }, code: "invalid_argument", text: "file names"},
		"hidden name":   {change: func(p *rackbusv1.SwitchFirmwareRequest) { p.Filename = ".x" }, code: "invalid_argument", text: "file names"},
		"outside":       {change: func(p *rackbusv1.SwitchFirmwareRequest) { p.File = "../../etc/passwd" }, code: "failed_precondition", text: "cannot be opened"},
		"missing":       {change: func(p *rackbusv1.SwitchFirmwareRequest) { p.File = "none" }, code: "failed_precondition", text: "not found"},
		"changed":       {change: func(p *rackbusv1.SwitchFirmwareRequest) { p.Sha256 = make([]byte, 32) }, code: "failed_precondition", text: "has changed"},
		"component":     {change: func(p *rackbusv1.SwitchFirmwareRequest) { p.Component = "SMA" }, code: "invalid_argument", text: "unknown switch component"},
		"not there":     {knobs: func(k *nvswitch.Knobs) { k.Commands = []nvswitch.CommandRule{{Match: "echo ok", Answer: true}} }, code: "internal", text: "does not see the file"},
		"stalled":       {knobs: func(k *nvswitch.Knobs) { k.SFTP.StallAfter = 100 }, code: "timeout", text: "stalled"},
		"no permission": {knobs: func(k *nvswitch.Knobs) { k.SFTP.Denied = []string{"/host/fw-images/**"} }, code: "internal", text: "upload"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if tt.knobs != nil {
				b.sw.UpdateKnobs(tt.knobs)
			}
			if tt.text == "stalled" {
				b.stall = 300 * time.Millisecond
			}
			b.start(nil)
			var changes []func(*rackbusv1.SwitchFirmwareRequest)
			if tt.change != nil {
				changes = append(changes, tt.change)
			}
			reply := push(b, changes...)
			require.Equal(t, tt.code, reply.GetError().GetCode(), "%v", reply.GetError())
			require.Contains(t, reply.GetError().GetMessage(), tt.text)
		})
	}
	t.Run("too small", func(t *testing.T) {
		b := newBench(t)
		b.start(nil)
		f := b.File("BMC", "small", []byte("x"))
		reply := push(b, func(p *rackbusv1.SwitchFirmwareRequest) {
			p.File, p.SizeBytes, p.Sha256 = f.GetFile(), 1, f.GetSha256()
		})
		require.Equal(t, agent.CodeInvalidArgument, reply.GetError().GetCode())
		require.Contains(t, reply.GetError().GetMessage(), "1024")
	})
}
