// SPDX-License-Identifier: Apache-2.0

package fabric

import "time"

// Look is how often something is looked at, and the pause between two looks.
type Look struct {
	Times int
	Pause time.Duration
}

// limit is how long the looks take together.
func (l Look) limit() time.Duration { return time.Duration(l.Times) * l.Pause }

// Timing is every wait, interval and limit of the package. Zero fields take their
// defaults.
type Timing struct {
	// Converge is how long a switch may take to show what it was told: states of the
	// cluster, of an app's manager, of the telemetry interface. 4 looks, 30 s apart.
	Converge Look
	// Ready is how long an app may take to serve once it runs. 7 looks, 10 s apart.
	Ready Look
	// Greet is how often a controller is connected to after its certificates were
	// changed. 5 tries, 6 s apart.
	Greet Look
	// GreetStarting is how often a controller of VR NVL72 is greeted that answers
	// UNAVAILABLE. 7 tries, 10 s apart.
	GreetStarting Look
	// CertificateSettle passes after an app was given a certificate or a CA. 5 s.
	CertificateSettle time.Duration
	// CommandGap passes between commands of a list. 300 ms.
	CommandGap time.Duration
	// Probe bounds a look at the port of an app. 10 s.
	Probe time.Duration

	// SoftResets is how often an app is restarted that does not take a topology, and
	// SoftResetPause passes before each. 2, 2 s.
	SoftResets     int
	SoftResetPause time.Duration
	// Configured is how long the control plane may take to be configured, looked at
	// every ConfiguredPoll; after a restart it has as long again. 180 s, 5 s.
	Configured     time.Duration
	ConfiguredPoll time.Duration

	// Rollback is kept of the time of a synchronous configuration for undoing it, and
	// Restore of that of a reconciliation. 20 s, 10 min.
	Rollback time.Duration
	Restore  time.Duration

	// SDNLimit is how long a controller may take to reset itself, looked at every
	// SDNPoll. 120 s, 5 s.
	SDNLimit time.Duration
	SDNPoll  time.Duration
	// SDNConfirm is how many looks in a row have to find a controller unconfigured
	// whose reset was never seen at work. 3.
	SDNConfirm int

	// Show is how long an action that was sent, but of which no answer was kept, may
	// take to show in an app's state before it counts as not taken. 60 s.
	Show time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Converge.Pause, 30 * time.Second},
		{&t.Ready.Pause, 10 * time.Second},
		{&t.Greet.Pause, 6 * time.Second},
		{&t.GreetStarting.Pause, 10 * time.Second},
		{&t.CertificateSettle, 5 * time.Second},
		{&t.CommandGap, 300 * time.Millisecond},
		{&t.Probe, 10 * time.Second},
		{&t.SoftResetPause, 2 * time.Second},
		{&t.Configured, 180 * time.Second},
		{&t.ConfiguredPoll, 5 * time.Second},
		{&t.Rollback, 20 * time.Second},
		{&t.Restore, 10 * time.Minute},
		{&t.SDNLimit, 120 * time.Second},
		{&t.SDNPoll, 5 * time.Second},
		{&t.Show, 60 * time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{
		{&t.Converge.Times, 4}, {&t.Ready.Times, 7}, {&t.Greet.Times, 5}, {&t.GreetStarting.Times, 7},
		{&t.SoftResets, 2}, {&t.SDNConfirm, 3},
	} {
		if *n.field <= 0 {
			*n.field = n.value
		}
	}
	return t
}
