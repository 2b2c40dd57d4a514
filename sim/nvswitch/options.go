// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// ErrInvalidOption is wrapped by errors of Start about options that make no sense.
var ErrInvalidOption = errors.New("invalid switch option")

// Model is a kind of switch.
type Model int

// The models that can be simulated.
const (
	GB200 Model = iota + 1
	GB300
	VRNVL72
)

func (m Model) family() string {
	return map[Model]string{GB200: "gb200", GB300: "gb300", VRNVL72: "vrnvl72"}[m]
}

// ModelOf returns the model of a node type, written as in "switch_gb200_nvidia", in any case.
func ModelOf(nodeType string) (Model, bool) {
	for _, m := range []Model{GB200, GB300, VRNVL72} {
		if strings.EqualFold(m.NodeType(), strings.TrimSpace(nodeType)) {
			return m, true
		}
	}
	return 0, false
}

// NodeType returns the node type in the form of the contract's NodeType values, for example "SWITCH_GB200_NVIDIA".
func (m Model) NodeType() string { return "SWITCH_" + strings.ToUpper(m.family()) + "_NVIDIA" }

// Ports are the TCP ports of a switch. Zero takes a free one.
type Ports struct {
	NVUE      int `json:"nvue"`
	SSH       int `json:"ssh"`
	NMXC      int `json:"nmxc"`
	Telemetry int `json:"telemetry"`
	GNMI      int `json:"gnmi"`
	BMC       int `json:"bmc"`
}

// Free reports whether any port is to be a free one.
func (p Ports) Free() bool {
	return p.NVUE == 0 || p.SSH == 0 || p.NMXC == 0 || p.Telemetry == 0 || p.GNMI == 0 || p.BMC == 0
}

// Timing is how long things take on a switch.
type Timing struct {
	// Apply is the time from the apply of a revision to its effect; default 20 ms.
	Apply time.Duration
	// Action is how long actions take that have no time of their own; default 20 ms.
	Action time.Duration
	// Install is how long the installation of an image or of firmware takes; default 60 ms.
	Install time.Duration
	// Shutdown is the time from an accepted reboot until connections are refused; default 40 ms.
	Shutdown time.Duration
	// Reboot is how long the switch is away; default 300 ms.
	Reboot time.Duration
	// AppStart is how long an app is starting; default 40 ms.
	AppStart time.Duration
	// Configure is the time from a change of the topology until the control plane is configured; default 20 ms.
	Configure time.Duration
	// SDNReset is how long the factory reset of the controller is in progress; default 60 ms.
	SDNReset time.Duration
}

func (t Timing) withDefaults() Timing {
	t.Apply = cmp.Or(t.Apply, 20*time.Millisecond)
	t.Action = cmp.Or(t.Action, 20*time.Millisecond)
	t.Install = cmp.Or(t.Install, 60*time.Millisecond)
	t.Shutdown = cmp.Or(t.Shutdown, 40*time.Millisecond)
	t.Reboot = cmp.Or(t.Reboot, 300*time.Millisecond)
	t.AppStart = cmp.Or(t.AppStart, 40*time.Millisecond)
	t.Configure = cmp.Or(t.Configure, 20*time.Millisecond)
	t.SDNReset = cmp.Or(t.SDNReset, 60*time.Millisecond)
	return t
}

// Options describe a switch. The zero value of each field has a use.
type Options struct {
	// ID is the node id; default "switch-0001".
	ID string
	// Model defaults to GB200.
	Model Model
	// Listen is the IP address of all listeners; default 127.0.0.1.
	Listen netip.Addr
	Ports  Ports
	// Username and Password are the account of the operating system; default "admin" and "racksim-pw".
	Username string
	Password string
	// BMCUsername and BMCPassword are the account of the BMC; they default to Username and Password.
	BMCUsername string
	BMCPassword string
	// Serial and ChassisSerial are those of the tray and of its rack; Slot is its position, from 0.
	Serial        string
	ChassisSerial string
	Slot          int
	Timing        Timing
	// Images are the build ids of both partitions; default "nvos-25.02.2000" and none. The switch runs the first.
	Images [2]string
	// Firmware adds to, or changes, the components and their versions.
	Firmware map[string]string
	// SPDM are the components that can be attested; default "ERoT_BMC_0" and "ERoT_FPGA_0". A non-nil empty list
	// is a switch without any.
	SPDM []string
	// Knobs are misbehaviours from the start.
	Knobs Knobs
	// Faults are rules for HTTP requests; nil has none.
	Faults *faults.Set
	// Log records requests; nil keeps them in a log of its own, see Switch.Log.
	Log *reqlog.Log
	// IdleTimeout closes idle HTTP connections; default 90 s.
	IdleTimeout time.Duration
	// Logger reports what goes wrong in the simulator itself; default slog.Default().
	Logger *slog.Logger
}

func (o Options) withDefaults() (Options, error) {
	o.ID = cmp.Or(o.ID, "switch-0001")
	o.Model = cmp.Or(o.Model, GB200)
	if o.Model < GB200 || o.Model > VRNVL72 {
		return o, fmt.Errorf("%w: model %d", ErrInvalidOption, o.Model)
	}
	o.Listen = cmp.Or(o.Listen, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	o.Username = cmp.Or(o.Username, "admin")
	o.Password = cmp.Or(o.Password, "racksim-pw")
	o.BMCUsername = cmp.Or(o.BMCUsername, o.Username)
	o.BMCPassword = cmp.Or(o.BMCPassword, o.Password)
	o.Serial = cmp.Or(o.Serial, "MT2500000001")
	o.ChassisSerial = cmp.Or(o.ChassisSerial, "1700000000001")
	o.Timing = o.Timing.withDefaults()
	if o.Images == [2]string{} {
		o.Images[0] = "nvos-25.02.2000"
	}
	firmware := firmwareOf(o.Model)
	maps.Copy(firmware, o.Firmware)
	o.Firmware = firmware
	if o.SPDM == nil {
		o.SPDM = []string{"ERoT_BMC_0", "ERoT_FPGA_0"}
	}
	if o.Faults == nil {
		o.Faults = &faults.Set{}
	}
	if o.Log == nil {
		o.Log = reqlog.New(reqlog.Options{})
	}
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 90*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	for _, p := range []int{o.Ports.NVUE, o.Ports.SSH, o.Ports.NMXC, o.Ports.Telemetry, o.Ports.GNMI, o.Ports.BMC} {
		if p < 0 || p > 65535 {
			return o, fmt.Errorf("%w: port %d", ErrInvalidOption, p)
		}
	}
	return o, nil
}

// firmwareOf returns the components of a model with the versions they start with.
func firmwareOf(m Model) map[string]string {
	out := map[string]string{
		"ASIC": "35.2014.1652", "BMC": "88.0002.0500", "BIOS": "0ACTV_00.01.015", "CPLD1": "CPLD000370_REV0900",
		"EROT": "01.03.0176.0000_n04", "FPGA": "0.1B", "SSD": "CE00A400", "TRANSCEIVER": "N/A",
	}
	if m == VRNVL72 {
		delete(out, "FPGA")
		out["SMA"] = "01.04.0008.0000"
	}
	return out
}
