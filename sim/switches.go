// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/rackbus/rackbus/sim/nvswitch"
)

// portTries bounds how often free ports are looked for that all switches can have.
const portTries = 20

// startSwitches starts the switches of a rack, each on an address of its own and all on the same ports.
func startSwitches(r *Rack) ([]*nvswitch.Switch, error) {
	models := r.opts.switchModels()
	if len(models) == 0 {
		return nil, nil
	}
	var failed error
	for range portTries {
		var out []*nvswitch.Switch
		if out, failed = trySwitches(r, models); failed == nil {
			return out, nil
		}
		for _, s := range out {
			failed = errors.Join(failed, s.Close())
		}
		if !r.opts.SwitchPorts.Free() {
			break
		}
	}
	return nil, failed
}

func trySwitches(r *Rack, models []nvswitch.Model) (out []*nvswitch.Switch, err error) {
	o := r.opts
	rackSerial := digits(rand.New(rand.NewPCG(o.Seed, 0)), "17")
	address, ports := netip.MustParseAddr(o.SwitchAddress), o.SwitchPorts
	for i, m := range models {
		random := rand.New(rand.NewPCG(o.Seed, uint64(switchSeed+i)))
		s, err := nvswitch.Start(r.ctx, nvswitch.Options{
			ID: fmt.Sprintf("switch-%04d", i+1), Model: m, Listen: address, Ports: ports,
			Username: o.SwitchUsername, Password: o.SwitchPassword, BMCUsername: o.Username, BMCPassword: o.Password,
			Serial: digits(random, "MT25"), ChassisSerial: rackSerial, Slot: i, Timing: o.SwitchTiming,
			Faults: &r.faults, Log: r.log, IdleTimeout: o.IdleTimeout, Logger: o.Logger,
		})
		if err != nil {
			return out, err
		}
		out = append(out, s)
		ports, address = s.Ports(), address.Next()
	}
	return out, nil
}

// switchSeed keeps the random numbers of switches apart from those of other devices.
const switchSeed = 1 << 24

// Switches returns all switches.
func (r *Rack) Switches() []*nvswitch.Switch { return r.switches }

// Switch returns the switch with a node id, nil if there is none.
func (r *Rack) Switch(id string) *nvswitch.Switch {
	for _, s := range r.switches {
		if s.ID() == id {
			return s
		}
	}
	return nil
}

// SwitchPorts returns the ports that all switches have, zeros without switches. A NodeSet tells those of NVUE and of
// the BMC only; clients have to be told the others.
func (r *Rack) SwitchPorts() nvswitch.Ports {
	if len(r.switches) == 0 {
		return nvswitch.Ports{}
	}
	return r.switches[0].Ports()
}

func (r *Rack) switchNode(s *nvswitch.Switch, i int) Node {
	p := s.Ports()
	// 02 marks a locally administered address.
	mac := func(kind byte) string { return fmt.Sprintf("02:53:%02x:00:00:%02x", kind, byte(i+1)) }
	host := endpoint(s.IP(), mac(1), p.NVUE, s.Username(), s.Password())
	return Node{
		NodeID: s.ID(), RackID: r.opts.RackID, Type: strings.ToUpper(s.NodeType()),
		BMCEndpoint:  endpoint(s.IP(), mac(0), p.BMC, s.BMCUsername(), s.BMCPassword()),
		HostEndpoint: &host,
	}
}
