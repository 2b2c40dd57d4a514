// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"fmt"
	"time"
)

// Power states of the BMC.
const (
	powerOn  = "On"
	powerOff = "Off"
)

// adminUser is the account of a factory-new switch, and its password.
const adminUser = "admin"

func addSystem(at route) {
	at("GET", "/system", func(s *Switch, _ *call) reply {
		return ok(object{"hostname": s.opts.ID, "product-name": productName(s.opts.Model)})
	})
	at("POST", "/system", post(map[string]func(*Switch, *call) reply{"@power-cycle": powerCycle}))
	at("POST", "/system/factory-default", post(map[string]func(*Switch, *call) reply{"@reset": factoryReset}))
	at("GET", gnmiPath, readConfig)
	at("GET", gnmiMTLS, readConfig)
	at("GET", apiPath, readConfig)
	at("GET", apiMTLS, readConfig)
	addImages(at)
}

func powerCycle(s *Switch, c *call) reply {
	return s.start(c, s.timing.Action, func(now time.Time, _ *action) outcome {
		s.reboot(now, bootPlan{power: true})
		return outcome{state: "action_running", status: "The system is going down for a power cycle."}
	})
}

func factoryReset(s *Switch, c *call) reply {
	s.resets++
	return s.start(c, s.timing.Action, func(now time.Time, _ *action) outcome {
		s.reboot(now, bootPlan{factory: true})
		return succeeded()
	})
}

// FactoryResets counts the accepted factory resets.
func (s *Switch) FactoryResets() int {
	s.lock()
	defer s.mu.Unlock()
	return s.resets
}

// bootPlan is what a boot brings beside the usual.
type bootPlan struct {
	// power says that components lost power, factory that nothing is kept.
	power, factory bool
}

// reboot takes the operating system down after the time it needs to shut down, and brings it back.
func (s *Switch) reboot(now time.Time, plan bootPlan) {
	s.after(now, s.timing.Shutdown, func(now time.Time) { s.goDown(now, plan, true) })
}

// goDown ends the operating system and all that was under way in it.
func (s *Switch) goDown(now time.Time, plan bootPlan, comesBack bool) {
	s.up = false
	s.reboots++
	s.agenda = nil
	s.revisions, s.actions, s.staged = map[string]*revision{}, map[string]*action{}, nil
	if plan.factory {
		s.forget()
	}
	if comesBack && !s.knobs.NeverBack {
		s.after(now, s.timing.Reboot, func(now time.Time) { s.boot(now, plan) })
	}
	s.after(now, 0, func(time.Time) {})
}

// forget is what a factory reset does to the state.
func (s *Switch) forget() {
	s.startup = factoryConfig(adminUser, adminUser)
	s.expired = map[string]bool{adminUser: !s.knobs.OpenAfterReset}
	s.cas, s.entities = map[string]*authority{}, map[string]*entity{}
	s.apps, s.static = newApps(), factoryStatic()
	s.fetched, s.evidence = map[string]string{}, map[string]string{}
	if err := s.wipe(); err != nil {
		s.opts.Logger.Error("removing a switch's files failed", "node", s.opts.ID, "err", err)
	}
	s.freshKey()
}

func (s *Switch) freshKey() {
	if !s.knobs.NewHostKey {
		return
	}
	if err := s.newHostKey(); err != nil {
		s.opts.Logger.Error("making a host key failed", "node", s.opts.ID, "err", err)
	}
}

// bootFile holds an id that is another one after every boot.
const bootFile = "/proc/sys/kernel/random/boot_id"

// freshBoot writes the id of a boot.
func (s *Switch) freshBoot() {
	var err error
	if s.knobs.NoBootID {
		err = s.root.RemoveAll(inside(bootFile))
	} else {
		err = s.WriteFile(bootFile, fmt.Appendf(nil, "%08x-0000-4000-8000-000000000000\n", s.reboots))
	}
	if err != nil {
		s.opts.Logger.Error("writing the boot id failed", "node", s.opts.ID, "err", err)
	}
}

// boot brings the operating system up.
func (s *Switch) boot(now time.Time, plan bootPlan) {
	if s.power != powerOn {
		return
	}
	s.up = true
	s.running = cloneDocument(s.startup)
	switched := s.bootImage()
	if switched {
		s.freshKey()
		if s.knobs.InstallExpiresAdmin {
			s.setPassword(adminUser, adminUser)
			s.expired[adminUser] = true
		}
	}
	if plan.power {
		for component, version := range s.pending {
			if !s.knobs.FirmwareUnchanged {
				s.firmware[component] = version
			}
		}
		s.pending = map[string]string{}
	}
	s.clearTemporary()
	s.freshBoot()
	s.clusterChanged(now, s.running.text(clusterPath, "state") == stateEnabled)
	s.after(now, 0, func(time.Time) {})
}

// Reboot restarts the switch at once, as a crash would.
func (s *Switch) Reboot() {
	now := s.lock()
	s.goDown(now, bootPlan{power: true}, true)
	s.mu.Unlock()
	s.Reconcile()
}

// CutPower takes the power from the switch, BMC included, or gives it back; then the switch boots.
func (s *Switch) CutPower(cut bool) {
	now := s.lock()
	if cut != s.dark {
		s.dark = cut
		if cut {
			s.goDown(now, bootPlan{}, false)
		} else {
			s.power = powerOn
			s.after(now, s.timing.Reboot, func(now time.Time) { s.boot(now, bootPlan{power: true}) })
		}
	}
	s.mu.Unlock()
	s.Reconcile()
}

// PowerState returns the true power state, "On" or "Off".
func (s *Switch) PowerState() string {
	s.lock()
	defer s.mu.Unlock()
	if s.dark {
		return powerOff
	}
	return s.power
}
