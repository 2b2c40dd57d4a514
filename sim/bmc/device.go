// SPDX-License-Identifier: Apache-2.0

package bmc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Host power states of a compute tray.
const (
	PowerOn          = "On"
	PowerOff         = "Off"
	PowerPoweringOn  = "PoweringOn"
	PowerPoweringOff = "PoweringOff"
)

// Timing is how long things take on a device.
type Timing struct {
	// Task is the time from upload to the end of an update task; default 2 s.
	Task time.Duration
	// BMCOutage is how long the BMC is away after a manager reset; default 2 s.
	BMCOutage time.Duration
	// AUXOutage is how long the BMC is away after an AUX power cycle; default BMCOutage.
	AUXOutage time.Duration
	// PowerOn is the time in PoweringOn; default 0.
	PowerOn time.Duration
	// Shutdown is the time in PoweringOff after a graceful shutdown; default 0.
	Shutdown time.Duration
}

func (t Timing) withDefaults() Timing {
	t.Task = cmp.Or(t.Task, 2*time.Second)
	t.BMCOutage = cmp.Or(t.BMCOutage, 2*time.Second)
	t.AUXOutage = cmp.Or(t.AUXOutage, t.BMCOutage)
	return t
}

// Config is what distinguishes a device from others of its model.
type Config struct {
	// ID is the node id, used in serial numbers only.
	ID string
	// Serial is the device's serial number.
	Serial string
	// ChassisSerial is the rack's serial number as compute trays report it: a string of digits.
	ChassisSerial string
	// Slot is the tray's position in the rack, from 0.
	Slot int
	// Release is which of the start versions the device has, from 0 to Releases-1.
	Release int
	// Username and Password are the only account.
	Username string
	Password string
	Timing   Timing
	// Outage is how the device is unreachable by default; empty is OutageUnavailable.
	Outage OutageMode
}

// Device is one simulated controller with what it controls. It is safe for concurrent use.
type Device struct {
	blueprint *Blueprint
	cfg       Config

	mu sync.Mutex
	// agenda are things that become true at a time; settle runs those that are due.
	agenda []event
	knobs  Knobs

	power     string
	supplyOn  [supplies]bool
	downUntil time.Time
	unpowered bool
	resets    int
	boots     int
	auxCycles int
	startedAt time.Time

	// installed and pending hold only versions that differ from the blueprint's.
	installed  map[string]string
	pending    map[string]string
	tasks      []*task
	units      [supplies]unit
	taskSerial int
	applyTime  string
	// pushTargets and pushForce are what octet-stream pushes to a tray are for.
	pushTargets []string
	pushForce   bool
	copyingTill time.Time
	copyForever bool
	// renamed are inventory entries that go by another id, from their own to that.
	renamed map[string]string
	// preserve is what a Lenovo tray keeps over an update of its BMC.
	preserve map[string]bool
	sessions map[string]string
	sessionN int
}

type event struct {
	at  time.Time
	run func(now time.Time)
}

// NewDevice returns a healthy device that is powered on.
func (b *Blueprint) NewDevice(cfg Config) *Device {
	cfg.Timing = cfg.Timing.withDefaults()
	cfg.Outage = cmp.Or(cfg.Outage, OutageUnavailable)
	d := &Device{blueprint: b, cfg: cfg, power: PowerOn, applyTime: "OnReset", startedAt: time.Now()}
	if b.product.shelf != nil {
		d.applyTime = "Immediate"
	}
	for i := range d.supplyOn {
		d.supplyOn[i] = true
	}
	return d
}

// lock takes the device and settles what has become due.
func (d *Device) lock() time.Time {
	d.mu.Lock()
	now := time.Now()
	d.settle(now)
	return now
}

func (d *Device) settle(now time.Time) {
	for {
		next := -1
		for i, e := range d.agenda {
			if !e.at.After(now) && (next < 0 || e.at.Before(d.agenda[next].at)) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		e := d.agenda[next]
		d.agenda = slices.Delete(d.agenda, next, next+1)
		e.run(e.at)
	}
}

// after runs f once wait has passed, at once when there is nothing to wait for.
func (d *Device) after(now time.Time, wait time.Duration, f func(now time.Time)) {
	if wait <= 0 {
		f(now)
		return
	}
	d.agenda = append(d.agenda, event{at: now.Add(wait), run: f})
}

// Model returns the device's model.
func (d *Device) Model() Model { return d.blueprint.model }

// Knobs returns the knobs as they are set.
func (d *Device) Knobs() Knobs {
	d.lock()
	defer d.mu.Unlock()
	return d.knobs
}

// SetKnobs replaces all knobs.
func (d *Device) SetKnobs(k Knobs) {
	now := d.lock()
	defer d.mu.Unlock()
	if k.BackgroundCopy != d.knobs.BackgroundCopy {
		d.copyForever = k.BackgroundCopy < 0
		d.copyingTill = now.Add(max(k.BackgroundCopy, 0))
	}
	d.knobs = k
}

// UpdateKnobs changes some knobs.
func (d *Device) UpdateKnobs(change func(*Knobs)) {
	k := d.Knobs()
	change(&k)
	d.SetKnobs(k)
}

// SetTiming changes how long things take from now on; what is under way keeps its time.
func (d *Device) SetTiming(t Timing) {
	d.lock()
	defer d.mu.Unlock()
	d.cfg.Timing = t.withDefaults()
}

// PowerState returns the true power state of a compute tray's host. For a shelf it is Off when any supply is off.
func (d *Device) PowerState() string {
	d.lock()
	defer d.mu.Unlock()
	if d.blueprint.product.shelf != nil {
		return d.shelfPower()
	}
	return d.power
}

// shelfPower is Off when any supply is.
func (d *Device) shelfPower() string {
	if slices.Contains(d.supplyOn[:], false) {
		return PowerOff
	}
	return PowerOn
}

// Boots counts how often the host of a compute tray was started or restarted: what its operating system sees as boots.
func (d *Device) Boots() int {
	d.lock()
	defer d.mu.Unlock()
	return d.boots
}

// AUXCycles counts the AUX power cycles of a compute tray: its cards lose power in each.
func (d *Device) AUXCycles() int {
	d.lock()
	defer d.mu.Unlock()
	return d.auxCycles
}

// SetPowerState sets the host's power state, or that of all supplies of a shelf, without side effects.
func (d *Device) SetPowerState(state string) {
	d.lock()
	defer d.mu.Unlock()
	d.power = state
	for i := range d.supplyOn {
		d.supplyOn[i] = state == PowerOn
	}
}

// SetSupply switches one supply of a shelf, from 0 to 5.
func (d *Device) SetSupply(i int, on bool) {
	d.lock()
	defer d.mu.Unlock()
	d.supplyOn[i] = on
}

// Version returns the installed version of an inventory entry, "" for an unknown one.
func (d *Device) Version(name string) string {
	d.lock()
	defer d.mu.Unlock()
	return d.versionLocked(d.ownName(name))
}

func (d *Device) versionLocked(name string) string {
	if v, ok := d.installed[name]; ok {
		return v
	}
	if c := d.blueprint.index[name]; c != nil {
		return c.versions[d.cfg.Release%Releases]
	}
	return ""
}

// SetVersion installs a version.
func (d *Device) SetVersion(name, version string) {
	d.lock()
	defer d.mu.Unlock()
	d.installLocked(name, version)
}

func (d *Device) installLocked(name, version string) {
	if d.installed == nil {
		d.installed = map[string]string{}
	}
	d.installed[name] = version
}

// Versions returns all installed versions by inventory name.
func (d *Device) Versions() map[string]string {
	d.lock()
	defer d.mu.Unlock()
	out := make(map[string]string, len(d.blueprint.components))
	for _, c := range d.blueprint.components {
		out[c.name] = d.versionLocked(c.name)
	}
	return out
}

// Pending returns versions that wait for activation.
func (d *Device) Pending() map[string]string {
	d.lock()
	defer d.mu.Unlock()
	return maps.Clone(d.pending)
}

// Resets counts the restarts of the BMC, AUX power cycles included.
func (d *Device) Resets() int {
	d.lock()
	defer d.mu.Unlock()
	return d.resets
}

// SetAccount changes the account; later requests need the new one.
func (d *Device) SetAccount(username, password string) {
	d.lock()
	defer d.mu.Unlock()
	d.cfg.Username, d.cfg.Password = username, password
}

// Restart restarts the BMC as a crash would: nothing is activated.
func (d *Device) Restart() {
	now := d.lock()
	defer d.mu.Unlock()
	d.restartBMC(now, d.cfg.Timing.BMCOutage)
}

// SetReachable takes the BMC away until it is called with true.
func (d *Device) SetReachable(reachable bool) {
	d.lock()
	defer d.mu.Unlock()
	d.unpowered = !reachable
}

// CutPower takes the power from a compute tray, BMC included, or brings the BMC back with the host off.
func (d *Device) CutPower(cut bool) {
	now := d.lock()
	defer d.mu.Unlock()
	if cut == d.unpowered {
		return
	}
	d.unpowered = cut
	d.power = PowerOff
	if !cut {
		d.restartBMC(now, d.cfg.Timing.BMCOutage)
	}
}

// Outage says how the BMC is unreachable now and until when; an until in the past, or zero, means it is reachable.
// An outage without a known end has until at most one hour ahead.
func (d *Device) Outage() (mode OutageMode, until time.Time) {
	now := d.lock()
	defer d.mu.Unlock()
	mode = cmp.Or(d.knobs.Outage, d.cfg.Outage)
	if d.unpowered {
		return mode, now.Add(time.Hour)
	}
	return mode, d.downUntil
}

// restartBMC begins an outage of the BMC.
func (d *Device) restartBMC(now time.Time, outage time.Duration) {
	d.resets++
	d.startedAt = now
	d.sessions = nil
	if until := now.Add(outage); until.After(d.downUntil) {
		d.downUntil = until
	}
	if d.knobs.LoseTasksOnRestart {
		for _, t := range d.tasks {
			t.abandoned = true
		}
		d.tasks = nil
	}
}

// String names the device for test failures and logs.
func (d *Device) String() string { return fmt.Sprintf("%s (%s)", d.cfg.ID, d.Model().NodeType()) }
