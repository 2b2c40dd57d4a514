// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// ErrInvalidOption is wrapped by errors of Start about options that make no sense.
var ErrInvalidOption = errors.New("invalid host option")

// Machine is the power of the tray, as its BMC knows it; a sim.Device is one.
type Machine interface {
	// PowerState is "On" while the host has power.
	PowerState() string
	// Boots counts how often the host was switched on, AUXCycles the AUX power cycles.
	Boots() int
	AUXCycles() int
}

// alwaysOn is a machine that never changes.
type alwaysOn struct{}

func (alwaysOn) PowerState() string { return "On" }
func (alwaysOn) Boots() int         { return 0 }
func (alwaysOn) AUXCycles() int     { return 0 }

// Device is a network device as it is made.
type Device struct {
	// Type is what mst shows, for example "ConnectX7", "ConnectX8" or "BlueField3".
	Type string
	// Path is the MST device; empty is one by type and number.
	Path    string
	PSID    string
	Version string
	// Functions adds further functions of the device, shown with .1, .2 and so on behind the path.
	Functions int
}

// Options describe a host. The zero value of each field has a use.
type Options struct {
	// Machine is the tray; nil is one that is always on.
	Machine Machine
	// Listen is the address to listen on; default 127.0.0.1:0.
	Listen string
	// Username and Password are the login, and the password of sudo; default "nvidia" and "simhost-pw".
	Username string
	Password string
	// Devices default to two ConnectX7 and one BlueField3.
	Devices []Device
	// Boot is how long the host starts after it was switched on; until then it takes logins and its state is
	// "starting". Flash is how long writing a device takes.
	Boot  time.Duration
	Flash time.Duration
	// Poll is how often the machine is looked at while connections are open; default 20 ms.
	Poll time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if o.Machine == nil {
		o.Machine = alwaysOn{}
	}
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	o.Username = cmp.Or(o.Username, "nvidia")
	o.Password = cmp.Or(o.Password, "simhost-pw")
	o.Poll = cmp.Or(o.Poll, 20*time.Millisecond)
	if o.Devices == nil {
		o.Devices = []Device{
			{Type: "ConnectX7", PSID: "MT_0000001069", Version: "28.39.1002"},
			{Type: "ConnectX7", PSID: "MT_0000001069", Version: "28.39.1002"},
			{Type: "BlueField3", PSID: "MT_0000001070", Version: "32.39.1002", Functions: 1},
		}
	}
	seen := map[string]bool{}
	for i := range o.Devices {
		d := &o.Devices[i]
		if d.Type == "" || d.PSID == "" || d.Version == "" {
			return o, fmt.Errorf("%w: device %d needs type, PSID and version", ErrInvalidOption, i)
		}
		if d.Path == "" {
			d.Path = fmt.Sprintf("/dev/mst/mt%s_pciconf%d", map[string]string{
				"ConnectX7": "4129", "ConnectX8": "4131", "BlueField3": "41692",
			}[d.Type], i)
		}
		if seen[d.Path] {
			return o, fmt.Errorf("%w: two devices at %s", ErrInvalidOption, d.Path)
		}
		seen[d.Path] = true
	}
	return o, nil
}
