// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
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

// Options describe a rack. The zero value of each field has a use.
type Options struct {
	// Compute and PowerShelves are how many devices of each kind there are.
	Compute      int
	PowerShelves int
	// ComputeGeneration and ShelfGeneration default to GB200.
	ComputeGeneration Generation
	ShelfGeneration   Generation
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
	// CoupledPower takes the power from all compute trays, BMCs included, while every shelf is off.
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

func (o Options) withDefaults() Options {
	o.ComputeGeneration = cmp.Or(o.ComputeGeneration, GB200)
	o.ShelfGeneration = cmp.Or(o.ShelfGeneration, GB200)
	o.RackID = cmp.Or(o.RackID, "rack-1")
	o.Listen = cmp.Or(o.Listen, "127.0.0.1")
	o.Username = cmp.Or(o.Username, "admin")
	o.Password = cmp.Or(o.Password, "racksim-pw")
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
	total := o.Compute + o.PowerShelves
	if o.Compute < 0 || o.PowerShelves < 0 || total == 0 || total > maxDevices {
		bad("%d compute trays and %d power shelves", o.Compute, o.PowerShelves)
	}
	if _, err := netip.ParseAddr(o.Listen); err != nil {
		bad("listen address %q is no IP address", o.Listen)
	}
	last := o.PortBase
	if o.PortBase > 0 && total <= PortLimit {
		last += total - 1
	}
	if o.PortBase < 0 || last > 65535 {
		bad("ports %d to %d", o.PortBase, last)
	}
	for _, g := range []Generation{o.ComputeGeneration, o.ShelfGeneration} {
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
