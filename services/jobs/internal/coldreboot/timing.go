// SPDX-License-Identifier: Apache-2.0

package coldreboot

import (
	"time"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// helloAttempts is how often a switch is asked whether NVOS is up. The pauses
// between them are the back-off times 1, 2, 4 and 8.
const helloAttempts = 5

// Timing is every wait, interval and limit of a cold reboot. Zero fields take
// their defaults.
type Timing struct {
	// PrestageFloor passes before the compute trays are first looked at after
	// their shutdown; default 0. PrestagePollMax is how long they may then take to
	// read OFF; default 5 min.
	PrestageFloor   time.Duration
	PrestagePollMax time.Duration
	// DischargeFloor passes before the trays are first looked at after the shelves
	// are off; default 3 min. DischargePollMax is how long their controllers may
	// then take to become unreachable; default 10 min.
	DischargeFloor   time.Duration
	DischargePollMax time.Duration
	// BMCUpFloor passes before the trays are first looked at after the shelves are
	// on; default 2 min. BMCUpPollMax is how long their controllers may then take
	// to answer; default 10 min.
	BMCUpFloor   time.Duration
	BMCUpPollMax time.Duration
	// HelloBackoff is the first pause between tries to reach NVOS; default 30 s.
	HelloBackoff time.Duration
	// BootWait is how long the compute trays are given to boot; default 5 min.
	BootWait time.Duration
	// PollInterval is the pause between two looks; default 15 s.
	PollInterval time.Duration

	// ActionLimit bounds one power action: the agent sends nothing of it later.
	// Default 1 min. ProbeLimit bounds one look; default 30 s.
	ActionLimit time.Duration
	ProbeLimit  time.Duration
	// ActionSettle is how long a power action of which no answer came may take to
	// show in the power state, before the device counts as not having taken it;
	// default 1 min. A graceful shutdown has PrestagePollMax.
	ActionSettle time.Duration
	// ClockMargin is how far the clocks of hosts may differ; default 2 s.
	ClockMargin time.Duration
	// AgentWait is how long a power action waits for an agent when none is
	// connected, as while it restarts; default 1 min.
	AgentWait time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.PrestagePollMax, 5 * time.Minute},
		{&t.DischargeFloor, 3 * time.Minute},
		{&t.DischargePollMax, 10 * time.Minute},
		{&t.BMCUpFloor, 2 * time.Minute},
		{&t.BMCUpPollMax, 10 * time.Minute},
		{&t.HelloBackoff, 30 * time.Second},
		{&t.BootWait, 5 * time.Minute},
		{&t.PollInterval, 15 * time.Second},
		{&t.ActionLimit, time.Minute},
		{&t.ProbeLimit, 30 * time.Second},
		{&t.ActionSettle, time.Minute},
		{&t.ClockMargin, 2 * time.Second},
		{&t.AgentWait, time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return t
}

// with replaces what a request sets; 0 leaves the default.
func (t Timing) with(o *rackbusv1.ColdRebootTiming) Timing {
	for _, d := range []struct {
		field   *time.Duration
		seconds uint32
	}{
		{&t.PrestageFloor, o.GetPrestageShutdownFloor()},
		{&t.PrestagePollMax, o.GetPrestageShutdownPollMax()},
		{&t.DischargeFloor, o.GetDischargeFloor()},
		{&t.DischargePollMax, o.GetDischargePollMax()},
		{&t.BMCUpFloor, o.GetBmcUpFloor()},
		{&t.BMCUpPollMax, o.GetBmcUpPollMax()},
		{&t.HelloBackoff, o.GetNvosHelloBackoff()},
		{&t.BootWait, o.GetComputeBootWait()},
		{&t.PollInterval, o.GetPollInterval()},
	} {
		if d.seconds > 0 {
			*d.field = time.Duration(d.seconds) * time.Second
		}
	}
	return t
}
