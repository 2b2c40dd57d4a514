// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"encoding/json"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// The tests wait for disks and timers, hardly ever for a processor.
const sideBySide = "8"

// long runs what differs from the other tests by the place of a death only.
var long = flag.Bool("long", false, "let agents die in every stage of every flavour")

// shared is for tests that need no agent of their own.
var shared = agenttest.NewShared(node.FamilyCompute)

// tests are those of the package, and the end of what they share.
type tests struct{ *testing.M }

func (m tests) Run() int {
	defer shared.Close()
	return m.M.Run()
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(tests{m})
}

// quick makes everything short enough for a test to wait for.
var quick = bmc.Timing{Task: 60 * time.Millisecond, BMCOutage: 100 * time.Millisecond}

// bench is one simulated tray and a broker.
type bench struct {
	*agenttest.Rig
	t    *testing.T
	rack *sim.Rack
	tray *sim.Device
	node *rackbusv1.NodeTarget
}

// newBench starts a tray and a broker. Agents are started by the tests.
func newBench(t *testing.T, change ...func(*sim.Options)) *bench {
	t.Helper()
	t.Parallel()
	return benchOn(t, agenttest.New(t, node.FamilyCompute), change...)
}

// newTray starts a tray for the agent that the tests share.
func newTray(t *testing.T, change ...func(*sim.Options)) *bench {
	t.Helper()
	t.Parallel()
	return benchOn(t, shared.Rig(t), change...)
}

func benchOn(t *testing.T, rig *agenttest.Rig, change ...func(*sim.Options)) *bench {
	t.Helper()
	o := sim.Options{Compute: 1, Timing: quick, RackID: rig.Rack}
	for _, c := range change {
		c(&o)
	}
	rack, err := sim.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rack.Close()) })
	tray := rack.Devices()[0]
	b := &bench{Rig: rig, t: t, rack: rack, tray: tray}
	b.node = b.target(tray)
	return b
}

func (b *bench) target(d *sim.Device) *rackbusv1.NodeTarget {
	b.t.Helper()
	return b.Target(agenttest.Device{
		RackID: b.rack.ID(), NodeID: d.ID(), Type: d.NodeType(), IP: d.IP(), Port: d.Port(),
		User: d.Username(), Password: d.Password(),
	})
}

func gb300(o *sim.Options) { o.ComputeGeneration = sim.GB300 }

// pldm writes a package of one version for the named components.
func (b *bench) pldm(name, version string, components ...string) *rackbusv1.FirmwareUpdateTarget {
	b.t.Helper()
	spec := firmwarepackage.Spec{Version: name}
	for _, c := range components {
		spec.Components = append(spec.Components, firmwarepackage.Component{Name: c, Version: version})
	}
	content, err := firmwarepackage.Build(spec)
	require.NoError(b.t, err)
	return b.File("", name, content)
}

// raw writes an image that says nothing of itself to the agent.
func (b *bench) raw(component, name string) *rackbusv1.FirmwareUpdateTarget {
	b.t.Helper()
	return b.File(component, name, firmwarepackage.Raw(name, 4096))
}

func update(targets ...*rackbusv1.FirmwareUpdateTarget) *rackbusv1.FirmwareUpdate {
	return &rackbusv1.FirmwareUpdate{Targets: targets}
}

func activated(targets ...*rackbusv1.FirmwareUpdateTarget) *rackbusv1.FirmwareUpdate {
	return &rackbusv1.FirmwareUpdate{Targets: targets, Activate: true}
}

// died waits until a doomed agent is dead. A job that ends before has never come
// to the point.
func (b *bench) died(doomed *agenttest.Agent, id job.ID) {
	b.t.Helper()
	select {
	case <-doomed.Dead():
	case <-time.After(agenttest.Patience):
		b.t.Fatalf("the agent still lives: %+v", b.Await(id).Event)
	}
}

// run runs an update to its end.
func (b *bench) run(u *rackbusv1.FirmwareUpdate) agenttest.Job {
	b.t.Helper()
	return b.Await(b.Admit(b.node, u))
}

// knobs sets what the tray does wrong.
func (b *bench) knobs(change func(*bmc.Knobs)) { b.tray.UpdateKnobs(change) }

// uploads are the uploads that arrived whole.
func (b *bench) uploads() []reqlog.Entry {
	var whole []reqlog.Entry
	for _, u := range b.rack.Uploads(b.tray.ID()) {
		if u.Upload.Task != "" {
			whole = append(whole, u)
		}
	}
	return whole
}

// posts counts what was sent to an action.
func (b *bench) posts(path string) int {
	return len(b.rack.Requests(b.tray.ID(), reqlog.Filter{Path: "**/" + path, Method: "POST"}))
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

const (
	hostReset = "ComputerSystem.Reset"
	auxReset  = "NvidiaChassis.AuxPowerReset"
)

// sent waits until an image has arrived.
func (b *bench) sent() {
	b.t.Helper()
	_, err := b.rack.WaitRequests(b.t.Context(), b.tray.ID(), reqlog.Filter{Path: "**/update-multipart", Method: "POST"}, 1)
	require.NoError(b.t, err)
}

// hide takes an entry out of the tray's inventory.
func (b *bench) hide(name string) {
	b.knobs(func(k *bmc.Knobs) { k.Hidden = append(k.Hidden, name) })
}
