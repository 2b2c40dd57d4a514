// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/internal/door"
)

// Device is a simulated controller on the network. The methods of bmc.Device read and change its state.
type Device struct {
	*bmc.Device
	rack *Rack

	id   string
	mac  string
	addr netip.AddrPort
	host *HostEndpoint
	// door is the device's listener, nil where one listener serves all devices.
	door *door.Door

	mu       sync.Mutex
	conns    map[*deviceConn]struct{}
	recovery *time.Timer
}

// ID returns the node id, for example "compute-0001" or "powershelf-0001".
func (d *Device) ID() string { return d.id }

// NodeType returns the node type in the form of the contract's NodeType values, for example "COMPUTE_GB200_NVIDIA".
// Model().DescriptorOnly() tells types that have no such value.
func (d *Device) NodeType() string { return d.Model().NodeType() }

// Addr returns "ip:port".
func (d *Device) Addr() string { return d.addr.String() }

// IP returns the address in text form.
func (d *Device) IP() string { return d.addr.Addr().String() }

// Port returns the TCP port.
func (d *Device) Port() int { return int(d.addr.Port()) }

// URL returns the base URL without a trailing slash.
func (d *Device) URL() string { return "https://" + d.addr.String() }

// MAC returns the MAC address in text form.
func (d *Device) MAC() string { return d.mac }

// Host returns where the tray's operating system is reached, nil when nowhere.
func (d *Device) Host() *HostEndpoint { return d.host }

// Username returns the account name the device was started with.
func (d *Device) Username() string { return d.rack.opts.Username }

// Password returns the password the device was started with.
func (d *Device) Password() string { return d.rack.opts.Password }

// Restart restarts the BMC as a crash would: nothing is activated.
func (d *Device) Restart() {
	d.Device.Restart()
	d.reconcile()
}

// SetReachable takes the BMC away, in the device's outage mode, until it is called with true.
func (d *Device) SetReachable(reachable bool) {
	d.Device.SetReachable(reachable)
	d.reconcile()
}

// CutPower takes the power from a compute tray, BMC included, or brings the BMC back with the host off.
func (d *Device) CutPower(cut bool) {
	d.Device.CutPower(cut)
	d.reconcile()
}

// SetKnobs replaces all knobs.
func (d *Device) SetKnobs(k bmc.Knobs) {
	d.Device.SetKnobs(k)
	d.reconcile()
}

// UpdateKnobs changes some knobs.
func (d *Device) UpdateKnobs(change func(*bmc.Knobs)) {
	d.Device.UpdateKnobs(change)
	d.reconcile()
}

// CutConnections resets the connections that clients have open to the device.
func (d *Device) CutConnections() {
	d.mu.Lock()
	open := make([]*deviceConn, 0, len(d.conns))
	for c := range d.conns {
		open = append(open, c)
	}
	d.mu.Unlock()
	for _, c := range open {
		c.Reset()
	}
}

// refusing reports whether the device refuses connections now, and until when if that is known.
func (d *Device) refusing(now time.Time) (time.Time, bool) {
	mode, until := d.Outage()
	if mode == bmc.OutageRefuse && until.After(now) {
		return until, true
	}
	return time.Time{}, d.rack.faults.Refusing(d.id)
}

// reconcile brings the device's listener and connections in line with its state.
func (d *Device) reconcile() {
	d.mu.Lock()
	now := time.Now()
	until, refusing := d.refusing(now)
	if d.recovery != nil {
		d.recovery.Stop()
		d.recovery = nil
	}
	if !until.IsZero() && d.rack.ctx.Err() == nil {
		d.recovery = time.AfterFunc(until.Sub(now), d.reconcile)
	}
	if d.door != nil {
		if err := d.door.Set(!refusing); err != nil {
			d.rack.opts.Logger.Error("reopening a device failed", "node", d.id, "err", err)
		}
	}
	d.mu.Unlock()
	if refusing {
		d.CutConnections()
	}
}

// stop ends the device's timer; reconcile arms none once the rack's context has ended.
func (d *Device) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recovery != nil {
		d.recovery.Stop()
	}
	for c := range d.conns {
		// Muted ones are known to nobody else; for the others the server's own close follows.
		_ = c.Conn.Close()
	}
}

// newDevices makes the devices of a rack, compute trays first, all without a listener yet.
func newDevices(r *Rack) ([]*Device, error) {
	o := r.opts
	models, err := o.models()
	if err != nil {
		return nil, err
	}
	blueprints := map[bmc.Model]*bmc.Blueprint{}
	rackRandom := rand.New(rand.NewPCG(o.Seed, 0))
	rackSerial := digits(rackRandom, "17")
	rackMAC := rackRandom.Uint32()
	numbers := map[string]int{}
	var out []*Device
	for _, m := range models {
		if blueprints[m] == nil {
			blueprints[m] = bmc.NewBlueprint(m)
		}
		kind := "compute"
		if m.Shelf() {
			kind = "powershelf"
		}
		slot := numbers[kind]
		numbers[kind]++
		n := len(out) + 1
		random := rand.New(rand.NewPCG(o.Seed, uint64(n)))
		d := &Device{rack: r, id: fmt.Sprintf("%s-%04d", kind, slot+1)}
		// 02 marks a locally administered address.
		d.mac = net.HardwareAddr{2, byte(rackMAC >> 8), byte(rackMAC), byte(n >> 16), byte(n >> 8), byte(n)}.String()
		d.Device = blueprints[m].NewDevice(bmc.Config{
			ID: d.id, Serial: digits(random, "16"), ChassisSerial: rackSerial, Slot: slot, Release: random.IntN(bmc.Releases),
			Username: o.Username, Password: o.Password, Timing: o.Timing, Outage: o.Outage,
		})
		out = append(out, d)
	}
	return out, nil
}

// askHosts asks for the host endpoints of the compute trays.
func askHosts(o Options, devices []*Device) error {
	if o.HostEndpoint == nil {
		return nil
	}
	for _, d := range devices {
		if !d.Model().Compute() {
			continue
		}
		host, err := o.HostEndpoint(d)
		if err != nil {
			return fmt.Errorf("host endpoint of %s: %w", d.id, err)
		}
		d.host = host
	}
	return nil
}

func pick(g Generation, i int, gb200, gb300 bmc.Model) bmc.Model {
	if g == GB300 || g == Mixed && i%2 == 1 {
		return gb300
	}
	return gb200
}

// digits returns a serial number of 13 digits.
func digits(random *rand.Rand, prefix string) string {
	return prefix + strconv.FormatUint(1e10+random.Uint64N(9e10), 10)
}
