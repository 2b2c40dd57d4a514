// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"slices"
	"time"
)

// event is something that becomes true at a time.
type event struct {
	at  time.Time
	run func(now time.Time)
}

// lock takes the switch and settles what has become due.
func (s *Switch) lock() time.Time {
	s.mu.Lock()
	now := time.Now()
	s.settle(now)
	return now
}

func (s *Switch) settle(now time.Time) {
	for {
		next := s.nextEvent()
		if next < 0 || s.agenda[next].at.After(now) {
			return
		}
		e := s.agenda[next]
		s.agenda = slices.Delete(s.agenda, next, next+1)
		e.run(e.at)
	}
}

// nextEvent is the index of the first event in time, -1 without one.
func (s *Switch) nextEvent() int {
	next := -1
	for i, e := range s.agenda {
		if next < 0 || e.at.Before(s.agenda[next].at) {
			next = i
		}
	}
	return next
}

// after runs f, with the switch locked, once d has passed. The events of an operating system end with it.
func (s *Switch) after(now time.Time, d time.Duration, f func(now time.Time)) {
	s.agenda = append(s.agenda, event{at: now.Add(d), run: f})
	s.armLocked()
}

// armLocked sets the timer to the next event.
func (s *Switch) armLocked() {
	if s.wake != nil {
		s.wake.Stop()
		s.wake = nil
	}
	next := s.nextEvent()
	if next < 0 || s.closed {
		return
	}
	s.wake = time.AfterFunc(time.Until(s.agenda[next].at), s.Reconcile)
}
