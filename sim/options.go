// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// ErrInvalidOption is wrapped by errors of Start about options that make no sense.
var ErrInvalidOption = errors.New("invalid simulator option")

// Generation selects the models of a kind of device.
type Generation string

// Generations of devices. Mixed alternates between both, starting with GB200.
const (
	GB200 Generation = "gb200"
	GB300 Generation = "gb300"
	Mixed Generation = "mixed"
)

// PortLimit is the largest number of devices that get a port each; more get an address each.
const PortLimit = 1000

// maxDevices is how many fit into the addresses used, 127.1.0.1 to 127.254.255.254.
const maxDevices = 254 * 256 * 254

// maxSwitches is how many switches a rack can have here; each is a directory and six listeners.
const maxSwitches = 250

// Options describe a rack. The zero value of each field has a use.
type Options struct {
	// Compute and PowerShelves are how many devices of each kind there are.
	Compute      int
	PowerShelves int
	// ComputeGeneration and ShelfGeneration default to GB200.
	ComputeGeneration Generation
	ShelfGeneration   Generation
	// Switches is how many switch trays there are, SwitchGeneration their model; it defaults to GB200.
	Switches         int
	SwitchGeneration Generation
	// SwitchAddress is the address of the first switch, further ones follow; default 127.2.0.1. SwitchPorts are the
	// ports of all of them; a port that is 0 is a free one, the same for all.
	SwitchAddress string
	SwitchPorts   nvswitch.Ports
	// SwitchTiming is how long things take on every switch.
	SwitchTiming nvswitch.Timing
	// SwitchUsername and SwitchPassword are the account of the switches' operating systems; they default to Username
	// and Password, which are those of their BMCs.
	SwitchUsername string
	SwitchPassword string
	// NodeTypes are further devices by node type, after the compute trays, power shelves or switches above.
	NodeTypes []NodeTypeCount
	// HostEndpoint tells where the operating system of a compute tray is reached; it is asked once for each tray
	// when the rack starts. Nil, or a nil answer, gives a tray without one.
	HostEndpoint func(tray *Device) (*HostEndpoint, error)
	// RackID is the rack in the node set; default "rack-1".
	RackID string
	// Listen is the IP address to listen on; default 127.0.0.1. Above PortLimit devices it is not used.
	Listen string
	// PortBase is the port of the first device, further ones follow; 0 takes free ports. Above PortLimit devices
	// it is the one port of all.
	PortBase int
	// Seed determines serial numbers, MAC addresses and start versions.
	Seed uint64
	// Username and Password are the account on every device; default "admin" and "racksim-pw".
	Username string
	Password string
	// Timing is how long things take on every device.
	Timing bmc.Timing
	// Outage is how devices are unreachable while their BMC restarts; default bmc.OutageUnavailable.
	Outage bmc.OutageMode
	// CoupledPower takes the power from all compute trays and switches, BMCs included, while every shelf is off.
	CoupledPower bool
	// RequestLog receives one JSON line per request; nil keeps them in memory only.
	RequestLog io.Writer
	// KeepRequests is how many reads and how many writes stay in memory; default 16384 each, negative none.
	KeepRequests int
	// Faults are rules in force from the start.
	Faults []faults.Rule
	// Control is the address of the control listener, for example "127.0.0.1:0"; empty has none. It must be
	// a loopback address, because the control listener asks for no credentials.
	Control string
	// IdleTimeout closes idle connections; default 90 s.
	IdleTimeout time.Duration
	// Logger reports what goes wrong in the simulator itself; default slog.Default().
	Logger *slog.Logger
}

// NodeTypeCount is a number of devices of a node type.
type NodeTypeCount struct {
	// Type is a node type such as "compute_gb300_lenovo", in any case.
	Type  string
	Count int
}

// HostEndpoint is where the operating system of a tray is reached, for example a server of package host.
type HostEndpoint struct {
	// Address is an IP address, Port the port of SSH.
	Address            string
	Port               int
	Username, Password string
}

// models returns the models of all devices, compute trays first.
func (o Options) models() ([]bmc.Model, error) {
	var trays, shelves []bmc.Model
	for i := range o.Compute {
		trays = append(trays, pick(o.ComputeGeneration, i, bmc.ComputeGB200NVIDIA, bmc.ComputeGB300NVIDIA))
	}
	for i := range o.PowerShelves {
		shelves = append(shelves, pick(o.ShelfGeneration, i, bmc.ShelfGB200LiteOn, bmc.ShelfGB300LiteOn))
	}
	for _, n := range o.NodeTypes {
		if _, isSwitch := nvswitch.ModelOf(n.Type); isSwitch {
			continue
		}
		m, ok := bmc.ModelOf(n.Type)
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: node type %q cannot be simulated", ErrInvalidOption, n.Type)
		case n.Count < 0 || n.Count > maxDevices:
			return nil, fmt.Errorf("%w: %d devices of node type %s", ErrInvalidOption, n.Count, n.Type)
		case m.Shelf():
			shelves = append(shelves, slices.Repeat([]bmc.Model{m}, n.Count)...)
		default:
			trays = append(trays, slices.Repeat([]bmc.Model{m}, n.Count)...)
		}
	}
	return append(trays, shelves...), nil
}

// switchModels returns the models of all switches.
func (o Options) switchModels() []nvswitch.Model {
	var out []nvswitch.Model
	for i := range o.Switches {
		m := nvswitch.GB200
		if o.SwitchGeneration == GB300 || o.SwitchGeneration == Mixed && i%2 == 1 {
			m = nvswitch.GB300
		}
		out = append(out, m)
	}
	for _, n := range o.NodeTypes {
		if m, ok := nvswitch.ModelOf(n.Type); ok {
			out = append(out, slices.Repeat([]nvswitch.Model{m}, max(n.Count, 0))...)
		}
	}
	return out
}

func (o Options) withDefaults() Options {
	o.SwitchGeneration = cmp.Or(o.SwitchGeneration, GB200)
	o.SwitchAddress = cmp.Or(o.SwitchAddress, "127.2.0.1")
	o.ComputeGeneration = cmp.Or(o.ComputeGeneration, GB200)
	o.ShelfGeneration = cmp.Or(o.ShelfGeneration, GB200)
	o.RackID = cmp.Or(o.RackID, "rack-1")
	o.Listen = cmp.Or(o.Listen, "127.0.0.1")
	o.Username = cmp.Or(o.Username, "admin")
	o.Password = cmp.Or(o.Password, "racksim-pw")
	o.SwitchUsername = cmp.Or(o.SwitchUsername, o.Username)
	o.SwitchPassword = cmp.Or(o.SwitchPassword, o.Password)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 90*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o
}

// validate reports all faults of the options together.
func (o Options) validate() error {
	var all []error
	bad := func(format string, args ...any) {
		all = append(all, fmt.Errorf("%w: "+format, append([]any{ErrInvalidOption}, args...)...))
	}
	total, switches := o.Compute+o.PowerShelves, o.Switches
	for _, n := range o.NodeTypes {
		if _, isSwitch := nvswitch.ModelOf(n.Type); isSwitch {
			switches += n.Count
		} else {
			total += n.Count
		}
	}
	if switches < 0 || o.Switches < 0 || switches > maxSwitches {
		bad("%d switches", switches)
	}
	if o.Compute < 0 || o.PowerShelves < 0 || total < 0 || total+switches <= 0 || total > maxDevices {
		bad("%d compute trays and %d power shelves, %d devices in all", o.Compute, o.PowerShelves, total)
	} else if _, err := o.models(); err != nil {
		all = append(all, err)
	}
	if _, err := netip.ParseAddr(o.Listen); err != nil {
		bad("listen address %q is no IP address", o.Listen)
	}
	if at, err := netip.ParseAddr(o.SwitchAddress); err != nil || !at.Is4() {
		bad("switch address %q is no IPv4 address", o.SwitchAddress)
	}
	last := o.PortBase
	if o.PortBase > 0 && total <= PortLimit {
		last += total - 1
	}
	if o.PortBase < 0 || last > 65535 {
		bad("ports %d to %d", o.PortBase, last)
	}
	for _, g := range []Generation{o.ComputeGeneration, o.ShelfGeneration, o.SwitchGeneration} {
		if g != GB200 && g != GB300 && g != Mixed {
			bad("generation %q is none of gb200, gb300, mixed", g)
		}
	}
	if o.Outage != "" && o.Outage != bmc.OutageUnavailable && o.Outage != bmc.OutageRefuse {
		bad("outage mode %q is neither 503 nor refuse", o.Outage)
	}
	if o.Control != "" {
		at, err := netip.ParseAddrPort(o.Control)
		if err != nil || !at.Addr().IsLoopback() {
			bad("control address %q is no loopback IP:PORT", o.Control)
		}
	}
	return errors.Join(all...)
}
