// SPDX-License-Identifier: Apache-2.0

package bus

import "time"

// Timing is every lease and wait of the bus.
type Timing struct {
	// SessionTTL is how long a silent agent keeps its jobs.
	SessionTTL time.Duration
	// SessionRenew is the pause between renewals of a session.
	SessionRenew time.Duration
	// SessionMargin is how long before its expiry a session stops acting. It
	// covers clock drift, a late expiry at the broker and the renewal's way.
	SessionMargin time.Duration
	// AckWait is how long a silent command stays with an agent.
	AckWait time.Duration
	// WorkInterval is the pause between in-progress signals of a command.
	WorkInterval time.Duration
	// NakBusy is the pause before a command is offered again while its
	// former owner may still be alive.
	NakBusy time.Duration
	// FoldTTL and FoldRenew are the lease of a fold partition's leader.
	FoldTTL   time.Duration
	FoldRenew time.Duration
	// Coalesce is how long writes wait for company.
	Coalesce time.Duration
	// Request bounds one request to the broker.
	Request time.Duration
}

// DefaultTiming returns the measured values for one server or a cluster of
// three. A cluster needs longer leases because losing a stream leader stops
// writes for five to ten seconds.
func DefaultTiming(replicas int) Timing {
	t := Timing{
		SessionTTL: 6 * time.Second, SessionRenew: 1500 * time.Millisecond, SessionMargin: time.Second,
		AckWait: 6 * time.Second, WorkInterval: 2 * time.Second, NakBusy: time.Second,
		FoldTTL: 5 * time.Second, FoldRenew: time.Second,
		Coalesce: 3 * time.Millisecond, Request: 5 * time.Second,
	}
	if replicas > 1 {
		t.SessionTTL, t.SessionRenew, t.SessionMargin = 15*time.Second, 2*time.Second, 2*time.Second
		t.AckWait, t.WorkInterval, t.NakBusy = 12*time.Second, 4*time.Second, 2*time.Second
		t.FoldTTL, t.FoldRenew = 15*time.Second, 2*time.Second
	}
	return t
}
