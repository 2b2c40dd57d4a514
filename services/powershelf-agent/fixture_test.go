// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"encoding/json"
	"flag"
	"strings"
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
var shared = agenttest.NewShared(node.FamilyPowerShelf)

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

const (
	pushPath     = "/redfish/v1/UpdateService/update"
	managerReset = "Manager.Reset"
	unitPath     = "**/PowerUnits/Actions/UpdateService/"
)

// bench is one simulated shelf and a broker.
type bench struct {
	*agenttest.Rig
	t     *testing.T
	rack  *sim.Rack
	shelf *sim.Device
	node  *rackbusv1.NodeTarget
}

// newBench starts a shelf and a broker. Agents are started by the tests.
func newBench(t *testing.T, change ...func(*sim.Options)) *bench {
	t.Helper()
	t.Parallel()
	return benchOn(t, agenttest.New(t, node.FamilyPowerShelf), change...)
}

// newShelf starts a shelf for the agent that the tests share.
func newShelf(t *testing.T, change ...func(*sim.Options)) *bench {
	t.Helper()
	t.Parallel()
	return benchOn(t, shared.Rig(t), change...)
}

func benchOn(t *testing.T, rig *agenttest.Rig, change ...func(*sim.Options)) *bench {
	t.Helper()
	o := sim.Options{RackID: rig.Rack, PowerShelves: 1, Timing: bmc.Timing{Task: 60 * time.Millisecond, BMCOutage: 100 * time.Millisecond}}
	for _, c := range change {
		c(&o)
	}
	rack, err := sim.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rack.Close()) })
	b := &bench{Rig: rig, t: t, rack: rack, shelf: rack.Devices()[0]}
	b.node = b.target(b.shelf)
	return b
}

func (b *bench) target(d *sim.Device) *rackbusv1.NodeTarget {
	b.t.Helper()
	return b.Target(agenttest.Device{
		RackID: b.rack.ID(), NodeID: d.ID(), Type: d.NodeType(), IP: d.IP(), Port: d.Port(),
		User: d.Username(), Password: d.Password(),
	})
}

// of makes the shelf one of a node type.
func of(nodeType string) func(*sim.Options) {
	return func(o *sim.Options) { o.PowerShelves, o.NodeTypes = 0, []sim.NodeTypeCount{{Type: nodeType, Count: 1}} }
}

// archive writes a shelf archive to the agent.
func (b *bench) archive(name, purpose, version string) *rackbusv1.FirmwareUpdateTarget {
	b.t.Helper()
	content, err := firmwarepackage.ShelfArchive(purpose, version, "shelf", []byte(name))
	require.NoError(b.t, err)
	return b.File("", name, content)
}

func activated(targets ...*rackbusv1.FirmwareUpdateTarget) *rackbusv1.FirmwareUpdate {
	return &rackbusv1.FirmwareUpdate{Targets: targets, Activate: true}
}

// knobs sets what the shelf does wrong.
func (b *bench) knobs(change func(*bmc.Knobs)) { b.shelf.UpdateKnobs(change) }

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

// units are the uploads for one supply after the other, by number.
func (b *bench) units() []string {
	var units []string
	for _, u := range b.rack.Uploads(b.shelf.ID()) {
		if u.Upload.PowerDevice != "" && u.Status < 300 {
			units = append(units, u.Upload.PowerDevice)
		}
	}
	return units
}

// image writes a raw controller image to the agent; the shelf reads the version
// from the name.
func (b *bench) image(name string) *rackbusv1.FirmwareUpdateTarget {
	b.t.Helper()
	return b.File("", name, firmwarepackage.Raw(name, 4096))
}

// controller is the version of the shelf's controller.
func (b *bench) controller() string {
	b.t.Helper()
	for name, version := range b.shelf.Versions() {
		if strings.HasPrefix(name, "pmc_") {
			return version
		}
	}
	b.t.Fatal("the shelf has no controller")
	return ""
}

func (b *bench) requests(method, path string) []reqlog.Entry {
	return b.rack.Requests(b.shelf.ID(), reqlog.Filter{Method: method, Path: path})
}

func (b *bench) run(u *rackbusv1.FirmwareUpdate) agenttest.Job {
	b.t.Helper()
	return b.Await(b.Admit(b.node, u))
}

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}
