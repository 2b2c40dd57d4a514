// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// cycled is an order about a job that began two hours ago and has switched the power of
// the node for two minutes, half an hour ago.
func cycled() *rackbusv1.NodeDiagnosis {
	from := now.Add(-30 * time.Minute)
	return Order(job.ID{1}, History{Events: []bus.StoredEvent{
		event(job.EventProgress, now.Add(-29*time.Minute), job.Stage{Name: "activate", Status: job.StageRunning, SwitchesPower: true, StartedAt: from}),
		event(job.EventFinished, now.Add(-time.Minute),
			job.Stage{Name: "install", Status: job.StageCompleted, StartedAt: now.Add(-2 * time.Hour), FinishedAt: from},
			job.Stage{Name: "recover", Status: job.StageSkipped, SwitchesPower: true, StartedAt: now.Add(-2 * time.Hour), FinishedAt: now.Add(-2 * time.Hour)},
			job.Stage{Name: "activate", Status: job.StageCompleted, SwitchesPower: true, StartedAt: from, FinishedAt: from.Add(2 * time.Minute)},
			job.Stage{Name: "verify", Status: job.StageFailed, StartedAt: from.Add(2 * time.Minute), FinishedAt: now.Add(-time.Minute)}),
	}})
}

func event(kind job.EventKind, at time.Time, stages ...job.Stage) bus.StoredEvent {
	return bus.StoredEvent{Event: job.Event{Kind: kind, At: at, StartedAt: now.Add(-2 * time.Hour), Stages: stages}}
}

// clock is a managers.json of a controller whose clock is ahead.
func clock(ahead time.Duration) string {
	return fmt.Sprintf(`{"read_at":%q,"resources":[{"uri":"/m","body":{"DateTime":%q}}]}`,
		now.Format(time.RFC3339), now.Add(ahead).Format(time.RFC3339))
}

// TestOwnPowerActionsAreNoFault: what a controller logs when our own job takes the power
// away is no finding; the same at another time is one, and so is everything else.
func TestOwnPowerActionsAreNoFault(t *testing.T) {
	during, before := now.Add(-29*time.Minute), now.Add(-50*time.Minute)
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		message string
		at      time.Time
		ahead   time.Duration
		want    string
	}{
		"power lost in our cycle":               {"OpenBMC.0.1.SystemPowerLost", during, 0, SignatureNoFault},
		"power lost right behind it":            {"OpenBMC.0.1.SystemPowerLost", now.Add(-27*time.Minute - 30*time.Second), 0, SignatureNoFault},
		"power lost before":                     {"OpenBMC.0.1.SystemPowerLost", before, 0, "POWER_SEQUENCE_FAULT"},
		"power lost behind":                     {"OpenBMC.0.1.SystemPowerLost", now.Add(-20 * time.Minute), 0, "POWER_SEQUENCE_FAULT"},
		"when the skipped stage had its turn":   {"OpenBMC.0.1.SystemPowerLost", now.Add(-2 * time.Hour), 0, "POWER_SEQUENCE_FAULT"},
		"input of a supply":                     {"OpenBMC.0.1.PowerSupplyPowerLost", during, 0, SignatureNoFault},
		"a rail goes down":                      {"SensorEvent.1.0.ReadingBelowLowerCriticalThreshold", during, 0, SignatureNoFault},
		"power good in our cycle":               {"OpenBMC.0.1.SystemPowerGoodFailed", during, 0, "POWER_SEQUENCE_FAULT"},
		"too hot in our cycle":                  {"OpenBMC.0.1.CPUThermalTrip", during, 0, "CPU_THERMAL_TRIP"},
		"cycle, clock a day ahead":              {"OpenBMC.0.1.SystemPowerLost", during.Add(day), day, SignatureNoFault},
		"cycle, clock never set":                {"OpenBMC.0.1.SystemPowerLost", time.Unix(40, 0), 0, SignatureNoFault},
		"fault, clock a day behind":             {"OpenBMC.0.1.CPUThermalTrip", before.Add(-day), -day, "CPU_THERMAL_TRIP"},
		"old entry, clock a day ahead":          {"OpenBMC.0.1.CPUThermalTrip", now.Add(-4 * time.Hour).Add(day), day, SignatureNoFault},
		"early in a job longer than its record": {"OpenBMC.0.1.CPUThermalTrip", now.Add(-150 * time.Minute), 0, "CPU_THERMAL_TRIP"},
		"fault, clock not set yet":              {"OpenBMC.0.1.CPUThermalTrip", time.Unix(40, 0), 0, "CPU_THERMAL_TRIP"},
	} {
		t.Run(name, func(t *testing.T) {
			e := documents(t, map[string]string{
				"logs/events.json": entry(c.message, "Critical", c.at), managersFile: clock(c.ahead),
			})
			f := Classify(Rules(), e, PeriodOf(cycled(), now), true)
			require.Equal(t, c.want, f.Signature, f.Summary)
		})
	}
}

// TestPeriodOfAnOrder: a job counts from when it began to work; one that never did from
// its first event.
func TestPeriodOfAnOrder(t *testing.T) {
	require.Equal(t, Period{Since: now.Add(-windowBeforeRun)}, PeriodOf(nil, now))
	queued := event(job.EventQueued, now.Add(-20*time.Hour))
	queued.StartedAt = time.Time{}
	ended := event(job.EventFinished, now.Add(-time.Minute))
	p := PeriodOf(Order(job.ID{1}, History{Events: []bus.StoredEvent{queued, ended}}), now)
	require.Equal(t, Period{Since: now.Add(-3 * time.Hour), Job: Span{now.Add(-2 * time.Hour), now.Add(-time.Minute)}}, p)
	p = PeriodOf(Order(job.ID{1}, History{Events: []bus.StoredEvent{queued}}), now)
	require.Equal(t, now.Add(-21*time.Hour), p.Since)
}

// TestPowerActionsOfAnOrder: a stage that was resumed counts from its first start, one
// that has no end until the job ended, and a change that was forced beside the job for a
// while. That the job before it has left the node is none.
func TestPowerActionsOfAnOrder(t *testing.T) {
	switching := func(from, to time.Time) job.Stage {
		return job.Stage{Name: "activate", Status: job.StageRunning, SwitchesPower: true, StartedAt: from, FinishedAt: to}
	}
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	inLine := event(job.EventNote, at(-100))
	inLine.Left = job.ID{2}
	o := Order(job.ID{1}, History{Events: []bus.StoredEvent{
		inLine,
		event(job.EventNote, at(-90)),
		event(job.EventProgress, at(-40), switching(at(-41), time.Time{})),
		event(job.EventProgress, at(-30), switching(at(-35), time.Time{})),
		event(job.EventFinished, at(-20), switching(at(-35), time.Time{})),
	}})
	require.Equal(t, now.Add(-2*time.Hour), o.GetStartedAt().AsTime())
	var got [][2]time.Time
	for _, p := range o.GetPowerActions() {
		got = append(got, [2]time.Time{p.GetFrom().AsTime(), p.GetTo().AsTime()})
	}
	require.Equal(t, [][2]time.Time{{at(-90), at(-90).Add(forcedSpan)}, {at(-41), at(-20)}}, got)
	require.Empty(t, Order(job.ID{}, History{}).GetPowerActions())
}
