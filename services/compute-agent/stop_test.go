// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"fmt"
	"os"
	"path/filepath"
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

// pinned are stages that go on up to the last of them.
func pinned(names ...string) []stoptest.Stage {
	var out []stoptest.Stage
	for _, n := range names {
		out = append(out, stoptest.Pinned(n, names[len(names)-1]))
	}
	return out
}

func stages(lists ...[]stoptest.Stage) []stoptest.Stage {
	var out []stoptest.Stage
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func cut(names ...string) []stoptest.Stage {
	var out []stoptest.Stage
	for _, n := range names {
		out = append(out, stoptest.Cut(n))
	}
	return out
}

// Each kind of update is stopped in the queue, in every stage and behind every
// change: an image that was begun is seen into the device, and a host that was taken
// down is brought up again.
func TestStopUpdate(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]stoptest.Kind{
		"GB200": {
			New: stoppedUpdate("compute_gb200_wiwynn"), Changes: 2,
			Stages: stages(cut("check"), pinned("upload", "install"),
				pinned("activate_aux_cycle", "activate_aux_settle", "activate_power_on", "activate_wait_on"), cut("verify")),
		},
		"GB300": {
			New: stoppedUpdate("compute_gb300_nvidia"), Changes: 2,
			Stages: stages(cut("check"), pinned("upload", "install"),
				pinned("activate_aux_cycle", "activate_wait_bmc", "activate_power_on", "activate_keep_on"), cut("verify")),
		},
		"Lenovo": {
			New: stoppedUpdate("compute_gb300_lenovo"), Changes: 2,
			Stages: stages(cut("check", "preserve"), pinned("upload", "install"),
				pinned("activate_aux_cycle", "activate_wait_bmc", "activate_power_on", "activate_keep_on"), cut("verify")),
		},
		"Supermicro": {
			New: stoppedUpdate("compute_gb300_supermicro"), Changes: 5,
			Stages: stages(cut("check_1"), pinned("upload_1", "install_1"),
				pinned("activate_hmc_aux_cycle", "activate_hmc_wait_bmc", "activate_hmc_power_on", "activate_hmc_keep_on"), cut("verify_hmc"),
				cut("check_2"), pinned("upload_2", "install_2"), pinned("activate_bios_aux_cycle", "activate_bios_keep_on"), cut("verify_bios"),
				cut("check_3"), pinned("upload_3", "install_3"), cut("verify_bmc")),
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
			Changes: 4,
			Stages: stages(cut("discover_host", "discover_devices", "flash_images"), pinned("flash", "flash_clean"),
				pinned("activate_aux_cycle", "activate_aux_settle", "activate_power_on", "activate_wait_on"), cut("host_ready", "verify")),
		},
	} {
		t.Run(name, func(t *testing.T) { k.Test(t, *long) })
	}
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
		Stages: cut("prepare", "collect", "classify", "store", "conclude"),
	}.Test(t, *long)
}

// A validator that was begun is ended, and its node released.
func TestStopValidation(t *testing.T) {
	t.Parallel()
	stoptest.Kind{
		New: func(t *testing.T) *stoptest.Bench {
			b := newBench(t)
			script := filepath.Join(t.TempDir(), "validate")
			require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\necho '{}'\n"), 0o700))
			v, err := validator.New(validator.Options{
				Command: []string{script}, Release: []string{script}, WorkDir: t.TempDir(), LogDir: t.TempDir(), Poll: 5 * time.Millisecond,
			})
			require.NoError(t, err)
			return b.stopped(func() job.ID {
				return b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
					c.Type = string(job.TypeSystemValidation)
					c.Operation = &rackbusv1.JobCommand_SystemValidation{SystemValidation: &rackbusv1.SystemValidation{}}
				})
			}, func(o *agenttest.AgentOptions) {
				o.Handlers = map[job.Type]agent.Handler{job.TypeSystemValidation: v.Validate}
			})
		},
		Stages: cut("prepare", "validate", "release", "result"),
	}.Test(t, *long)
}
