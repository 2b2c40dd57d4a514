// SPDX-License-Identifier: Apache-2.0

package job

import (
	"fmt"
	"time"
)

const (
	textRolloutAborted   = "the rollout was aborted"
	textRolloutExpired   = "the deadline of the rollout passed"
	textRolloutCancelled = "the whole job was asked to stop"
	textRolloutConfirm   = "the plan asks for a confirmation before each wave"
	// textRolloutQueued is the description of a child that has not started. It stays
	// right when the child may start.
	textRolloutQueued = "Queued; starts with its wave"
)

func failuresText(n uint32) string {
	if n == 1 {
		return "the rollout stopped after 1 failure"
	}
	return fmt.Sprintf("the rollout stopped after %d failures", n)
}

// RolloutQueued gives a child of a batch that starts in waves its description.
func RolloutQueued(r Record) Record {
	r.Description = textRolloutQueued
	return r
}

// NotStarted is how a child ends that was not started before its rollout stopped.
func (o *Rollout) NotStarted() (State, *Failure) {
	message := "not started: " + o.Reason
	if o.Stop == RolloutStopDeadline {
		return StateTimedOut, NewFailure(FailureQueueDeadline, message)
	}
	return StateCancelled, NewFailure(FailureRolloutStopped, message)
}

// rolloutText is the description of a parent that has not ended. text is that of a
// batch without waves.
func (r *Record) rolloutText(text string) string {
	o := r.Rollout
	if o == nil || !r.Admitted {
		return text
	}
	prefix := cancelPrefix(r.Cancel.mode())
	all := fmt.Sprintf("%d of %d done in all", r.Counts.Done(), r.Total)
	if n := r.Counts.failures(); n > 0 {
		all += fmt.Sprintf(", %d failed", n)
	}
	return prefix + r.waveText() + "; " + all
}

func (r *Record) waveText() string {
	o := r.Rollout
	switch o.State {
	case RolloutPausing:
		switch {
		case o.Wave == 0:
			return "The first wave follows"
		case o.NextWaveAt.IsZero():
			return fmt.Sprintf("Wave %d of %d ended, the next one follows", o.Wave, o.Waves)
		}
		return fmt.Sprintf("Wave %d of %d ended, next wave at %s", o.Wave, o.Waves, o.NextWaveAt.UTC().Format(time.RFC3339))
	case RolloutHeld:
		held := fmt.Sprintf("held before wave %d", o.Wave+1)
		if o.Reason != "" {
			held += ": " + o.Reason
		}
		if o.RequestedBy != "" {
			held += " (" + o.RequestedBy + ")"
		}
		if r.waveOver() {
			return capital(held)
		}
		return r.underWay() + "; " + held
	case RolloutStopped:
		text := capital(o.Reason)
		if !r.waveOver() {
			text += fmt.Sprintf(", wave %d ends: %s", o.Wave, r.ended())
		}
		return text
	default:
		return r.underWay()
	}
}

func (r *Record) underWay() string {
	return fmt.Sprintf("Wave %d of %d under way: %s", r.Rollout.Wave, r.Rollout.Waves, r.ended())
}

// ended tells how many children of the last wave have ended.
func (r *Record) ended() string {
	var done, all uint32
	for i := range r.Rollout.Members.All() {
		all++
		if r.Children.Get(i).Terminal() {
			done++
		}
	}
	return fmt.Sprintf("%d of %d ended", done, all)
}

// capital begins a text of our own with a capital letter.
func capital(text string) string {
	if text == "" || text[0] < 'a' || text[0] > 'z' {
		return text
	}
	return string(text[0]-'a'+'A') + text[1:]
}
