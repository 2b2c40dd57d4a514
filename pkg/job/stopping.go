// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"time"
)

// StateUnknownText is part of the message of every job that was cut by force.
const StateUnknownText = "hardware state unknown"

// stoppingText is the description of a job that was asked to stop, made from the
// one it has otherwise. While the device is being changed it says so.
func stoppingText(m CancelMode, description string, stages []Stage) string {
	return cancelPrefix(m) + description + stopNote(m, stages)
}

// stopNote tells of a stage that cannot be cut, how long the job may take to stop,
// and what a termination does. It is empty when the job can stop where it is.
func stopNote(m CancelMode, stages []Stage) string {
	s, ok := RunningStage(stages)
	if m == CancelNone || !ok || !s.Uninterruptible {
		return ""
	}
	if m == CancelTerminate {
		return fmt.Sprintf(" (cut in stage %s: %s)", s.Name, StateUnknownText)
	}
	limit := "as long as the device needs"
	if s.StopLimit > 0 {
		limit = "up to " + Words(s.StopLimit)
	}
	return fmt.Sprintf(" (stage %s, %q, cannot be cut; it may take %s. Terminating the job would leave the %s)",
		s.Name, s.Description, limit, StateUnknownText)
}

// RunningStage returns the stage under way, and false when there is none.
func RunningStage(stages []Stage) (Stage, bool) {
	for i := range stages {
		if stages[i].Status == StageRunning {
			return stages[i], true
		}
	}
	return Stage{}, false
}

// CutText is the message of a job that was cut by force: how, in which stage, if it
// was in one, and what the device was at work on, "" when nothing is known to be.
func CutText(how string, s Stage, inFlight string) string {
	text := how
	if s.Name != "" {
		text = how + " during stage " + s.Name
		if s.Description != "" && s.Description != s.Name {
			text += fmt.Sprintf(" (%s)", s.Description)
		}
	}
	text += ": " + StateUnknownText
	if inFlight != "" {
		text += "; in flight: " + inFlight
	}
	return text
}

// EndStages returns the stages of a job that has ended without its worker: the one
// under way has failed with the message, and those behind it are skipped.
func EndStages(id ID, stages []Stage, message string, at time.Time) []Stage {
	if len(stages) == 0 {
		return stages
	}
	t := ResumeTimeline(id, time.Time{}, stages)
	if s, ok := t.Current(); ok && s.Status == StageRunning {
		t, _ = t.Fail(at, message, nil) // there is a current stage
	}
	return t.SkipRemaining(at).Visible()
}

// Words returns a duration as people say it, rounded up to what matters: seconds
// below two minutes, minutes below two hours, else hours and minutes.
func Words(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return plural(ceil(d, time.Second), "second")
	case d < 2*time.Hour:
		return plural(ceil(d, time.Minute), "minute")
	}
	minutes := ceil(d, time.Minute)
	text := plural(minutes/60, "hour")
	if rest := minutes % 60; rest > 0 {
		text += " " + plural(rest, "minute")
	}
	return text
}

func ceil(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

func plural(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
