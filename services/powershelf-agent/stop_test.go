// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/jobs/stoptest"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// depth is how deep a run goes without -long.
func depth(usual stoptest.Depth) stoptest.Depth {
	if *long {
		return stoptest.All
	}
	return usual
}

// stopped is the shelf with a job that is to be stopped.
func (b *bench) stopped(admit func() job.ID) *stoptest.Bench {
	return &stoptest.Bench{
		Conn: b.Conn, Family: b.Family, Connect: b.Connect, Admit: admit, Quiet: 200 * time.Millisecond,
		At: node.Ref{RackID: b.node.GetRackId(), NodeID: b.node.GetNodeId()},
		Start: func(points *failpoint.Points) {
			b.Start(func(o *agenttest.AgentOptions) { o.Failpoints = points })
		},
		Requests: func() []stoptest.Request {
			var out []stoptest.Request
			for _, e := range b.rack.Requests("", reqlog.Filter{}) {
				out = append(out, stoptest.Request{At: e.Time, Text: fmt.Sprintf("%s %s", e.Method, e.Path)})
			}
			return out
		},
	}
}

// Each kind of update is stopped in the queue, in every stage and behind every
// change: what a shelf has begun is waited for, and its controller comes back.
func TestStopUpdate(t *testing.T) {
	t.Parallel()
	install, restart := stoptest.Pinned("upload", "install"), stoptest.Pinned("activate_manager_reset", "activate_wait_manager")
	controller := slices.Concat(stoptest.Cut("check"), install, restart, stoptest.Cut("verify"))
	oneByOne := stoptest.Pinned("upload", "install", "repair")
	for i := range oneByOne {
		oneByOne[i].Status = job.StageFailed // it stops between two supplies
	}
	table := map[string][]stoptest.Stage{
		"LiteOn controller":          controller,
		"LiteOn supplies at once":    slices.Concat(stoptest.Cut("check"), install, restart),
		"LiteOn supplies one by one": slices.Concat(stoptest.Cut("check"), oneByOne, restart),
		"Delta controller":           controller,
		"Delta supplies":             controller,
	}
	for name, f := range flavours() {
		changes := slices.Repeat([]string{"in flight: "}, f.changes)
		k := stoptest.Kind{Stages: table[name], Changes: changes, New: func(t *testing.T) *stoptest.Bench {
			b := newBench(t, of(f.nodeType))
			b.knobs(f.knobs)
			u := activated(f.target(b))
			return b.stopped(func() job.ID { return b.Admit(b.node, u) })
		}}
		t.Run(name, func(t *testing.T) {
			if name == "LiteOn supplies one by one" || name == "Delta controller" {
				k.Test(t, depth(stoptest.Each))
				return
			}
			k.Test(t, depth(stoptest.Sample))
		})
	}
}

func TestStopDiagnostics(t *testing.T) {
	t.Parallel()
	stoptest.Kind{
		New: func(t *testing.T) *stoptest.Bench {
			b := newBench(t)
			return b.stopped(func() job.ID {
				return b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
					c.Type = string(job.TypeNodeDiagnostics)
					c.Operation = &rackbusv1.JobCommand_NodeDiagnosis{NodeDiagnosis: &rackbusv1.NodeDiagnosis{}}
				})
			})
		},
		Stages: slices.Concat(stoptest.Cut("prepare", "collect", "classify", "store"), stoptest.Done("conclude")),
	}.Test(t, depth(stoptest.Sample))
}
