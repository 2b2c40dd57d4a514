// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/compute-agent/internal/validator"
	"github.com/rackbus/rackbus/services/jobs/stoptest"
	"github.com/rackbus/rackbus/sim/host"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// stopped is the tray with a job that is to be stopped.
func (b *bench) stopped(admit func() job.ID, change ...func(*agenttest.AgentOptions)) *stoptest.Bench {
	return &stoptest.Bench{
		Conn: b.Conn, Family: b.Family, Connect: b.Connect, Admit: admit, Quiet: 200 * time.Millisecond,
		At: node.Ref{RackID: b.node.GetRackId(), NodeID: b.node.GetNodeId()},
		Start: func(points *failpoint.Points) {
			b.Start(append(change, func(o *agenttest.AgentOptions) { o.Failpoints = points })...)
		},
		Requests: func() []stoptest.Request {
			var out []stoptest.Request
			for _, e := range b.rack.Requests("", reqlog.Filter{}) {
				out = append(out, stoptest.Request{At: e.Time, Text: fmt.Sprintf("%s %s %s", e.Protocol, e.Method, e.Path)})
			}
			return out
		},
	}
}

// depth is how deep a run goes without -long.
func depth(usual stoptest.Depth) stoptest.Depth {
	if *long {
		return stoptest.All
	}
	return usual
}

// stoppedUpdate is a tray of a node type with an update.
func stoppedUpdate(nodeType string) func(*testing.T) *stoptest.Bench {
	return func(t *testing.T) *stoptest.Bench {
		b := newBench(t, of(nodeType))
		var s set
		if f, ok := flavourOf(nodeType); ok {
			s = f.packages(b)
		} else {
			s = b.packages(nodeType)
		}
		return b.stopped(func() job.ID { return b.Admit(b.node, s.update) })
	}
}

func flavourOf(nodeType string) (flavour, bool) {
	for _, f := range flavours() {
		if f.nodeType == nodeType {
			return f, true
		}
	}
	return flavour{}, false
}

// Each kind of update is stopped in the queue, in every stage and behind every
// change: an image that was begun is seen into the device, and a host that was taken
// down is brought up again.
func TestStopUpdate(t *testing.T) {
	t.Parallel()
	const task, cycle, flash = "in flight: task ", "in flight: AUX power cycle", "in flight: flash of /dev/"
	for name, k := range map[string]stoptest.Kind{
		"GB200": {
			New: stoppedUpdate("compute_gb200_wiwynn"), Changes: []string{task, cycle},
			Stages: slices.Concat(stoptest.Cut("check"), stoptest.Pinned("upload", "install"),
				stoptest.Pinned("activate_aux_cycle", "activate_aux_settle", "activate_power_on", "activate_wait_on"), stoptest.Cut("verify")),
		},
		"GB300": {
			New: stoppedUpdate("compute_gb300_nvidia"), Changes: []string{task, task, cycle},
			Stages: slices.Concat(stoptest.Cut("check_1"), stoptest.Pinned("upload_1", "install_1"), stoptest.Cut("check_2"), stoptest.Pinned("upload_2", "install_2"),
				stoptest.Pinned("activate_aux_cycle", "activate_wait_bmc", "activate_power_on", "activate_keep_on"), stoptest.Cut("verify")),
		},
		"Lenovo": {
			New: stoppedUpdate("compute_gb300_lenovo"), Changes: []string{task, cycle},
			Stages: slices.Concat(stoptest.Cut("check", "preserve"), stoptest.Pinned("upload", "install"),
				stoptest.Pinned("activate_aux_cycle", "activate_wait_bmc", "activate_power_on", "activate_keep_on"), stoptest.Cut("verify")),
		},
		"Supermicro": {
			New: stoppedUpdate("compute_gb300_supermicro"), Changes: []string{task, cycle, task, cycle, task},
			Stages: slices.Concat(stoptest.Cut("check_1"), stoptest.Pinned("upload_1", "install_1"),
				stoptest.Pinned("activate_hmc_aux_cycle", "activate_hmc_wait_bmc", "activate_hmc_power_on", "activate_hmc_keep_on"), stoptest.Cut("verify_hmc"),
				stoptest.Cut("check_2"), stoptest.Pinned("upload_2", "install_2"), stoptest.Pinned("activate_bios_aux_cycle", "activate_bios_wait_bmc", "activate_bios_power_on", "activate_bios_keep_on"), stoptest.Cut("verify_bios"),
				stoptest.Cut("check_3"), stoptest.Pinned("upload_3", "install_3"), stoptest.Cut("verify_bmc")),
		},
		"in band": {
			New: func(t *testing.T) *stoptest.Bench {
				h := newHostBench(t, func(o *host.Options) { o.Flash = 50 * time.Millisecond })
				u := h.nics()
				b := h.stopped(func() job.ID { return h.Admit(h.node, u) }, h.inBand)
				bmc := b.Requests
				b.Requests = func() []stoptest.Request { return append(bmc(), hostRequests(h)...) }
				return b
			},
			Changes: []string{flash, flash, flash, cycle},
			Stages: unlimited("flash", stoptest.Cut("discover_host", "discover_devices", "flash_images"), stoptest.Pinned("flash", "flash_clean"),
				stoptest.Pinned("activate_aux_cycle", "activate_aux_settle", "activate_power_on", "activate_wait_on"), stoptest.Cut("host_ready", "verify")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "GB200" || name == "in band" {
				k.Test(t, depth(stoptest.Each))
				return
			}
			k.Test(t, depth(stoptest.Sample))
		})
	}
}

// unlimited says that the limit of a stage is not known as it begins.
func unlimited(name string, lists ...[]stoptest.Stage) []stoptest.Stage {
	out := slices.Concat(lists...)
	for i := range out {
		out[i].Unlimited = out[i].Name == name
	}
	return out
}

// hostRequests are the commands that the host got.
func hostRequests(h *hostBench) []stoptest.Request {
	var out []stoptest.Request
	for _, e := range h.host.Log("") {
		if e.Exit >= 0 { // one that was cut is noted once the host has seen that
			out = append(out, stoptest.Request{At: e.At, Text: "host: " + e.Command})
		}
	}
	return out
}

func TestStopDiagnostics(t *testing.T) {
	t.Parallel()
	stoptest.Kind{
		New: func(t *testing.T) *stoptest.Bench {
			b := newBench(t)
			return b.stopped(func() job.ID { return b.diagnose(&rackbusv1.NodeDiagnosis{}) })
		},
		Stages: slices.Concat(stoptest.Cut("prepare", "collect", "classify", "store"), stoptest.Done("conclude")),
	}.Test(t, depth(stoptest.Each))
}

// A validator that was begun is ended, and its node released.
func TestStopValidation(t *testing.T) {
	t.Parallel()
	stoptest.Kind{
		New: func(t *testing.T) *stoptest.Bench {
			b := newBench(t)
			script, calls := filepath.Join(t.TempDir(), "validate"), filepath.Join(t.TempDir(), "calls")
			require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\ndate +%s%N >>"+calls+"; [ \"$1\" ] || sleep 0.1\n"), 0o700))
			v, err := validator.New(validator.Options{
				Command: []string{script}, Release: []string{script, "release"}, WorkDir: t.TempDir(), LogDir: t.TempDir(), Poll: 5 * time.Millisecond,
			})
			require.NoError(t, err)
			stopped := b.stopped(func() job.ID {
				return b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
					c.Type = string(job.TypeSystemValidation)
					c.Operation = &rackbusv1.JobCommand_SystemValidation{SystemValidation: &rackbusv1.SystemValidation{}}
				})
			}, func(o *agenttest.AgentOptions) {
				o.Handlers = map[job.Type]agent.Handler{job.TypeSystemValidation: v.Validate}
			})
			stopped.Requests = func() []stoptest.Request {
				text, err := os.ReadFile(calls)
				if !errors.Is(err, fs.ErrNotExist) {
					require.NoError(t, err)
				}
				var out []stoptest.Request
				for _, line := range strings.Fields(string(text)) {
					n, err := strconv.ParseInt(line, 10, 64)
					require.NoError(t, err)
					out = append(out, stoptest.Request{At: time.Unix(0, n), Text: "validator"})
				}
				return out
			}
			return stopped
		},
		Stages: slices.Concat(
			stoptest.Brief("prepare"),
			[]stoptest.Stage{{Name: "validate", End: "result", Status: job.StageFailed, State: job.StateCancelled}},
			// A validation that has ended before the request came counts.
			stoptest.Final("release", "result")[:1],
			[]stoptest.Stage{{Name: "result", End: "result", Status: job.StageCompleted, State: job.StateCompleted}},
		),
	}.Test(t, depth(stoptest.Each))
}
