// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Set is the rules in force. It is safe for concurrent use; the zero value is empty and ready.
type Set struct {
	mu      sync.RWMutex
	rules   []*entry
	created int
}

type entry struct {
	Rule
	matcher
	limited bool
}

// Add puts a rule in force and returns its id.
func (s *Set) Add(r Rule) (string, error) {
	if err := r.Validate(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ID == "" {
		s.created++
		r.ID = fmt.Sprintf("fault-%d", s.created)
	}
	e := &entry{Rule: r, matcher: newMatcher(r), limited: r.Remaining > 0}
	if at := s.index(r.ID); at >= 0 {
		s.rules[at] = e
	} else {
		s.rules = append(s.rules, e)
	}
	return r.ID, nil
}

// Remove takes a rule out and reports whether it was there.
func (s *Set) Remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.index(id)
	if at < 0 {
		return false
	}
	s.rules = slices.Delete(s.rules, at, at+1)
	return true
}

// Clear takes all rules out.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// Rules returns the rules in force with what remains of them. A rule that is used up is gone.
func (s *Set) Rules() []Rule {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Rule, len(s.rules))
	for i, e := range s.rules {
		out[i] = e.Rule
	}
	return out
}

func (s *Set) index(id string) int {
	return slices.IndexFunc(s.rules, func(e *entry) bool { return e.ID == id })
}

// Match returns the rules that apply to a request, in order, and counts one use of each: all Latency and JSONMerge
// rules, and the first with another action.
func (s *Set) Match(device, method, path string) []Rule {
	return s.take(func(e *entry) bool { return !e.Action.Refuse && !e.Action.Mute && e.match(device, method, path) })
}

// RefuseConnection reports whether a new connection to the device has to be reset, and counts one use.
func (s *Set) RefuseConnection(device string) (string, bool) {
	found := s.take(func(e *entry) bool { return e.Action.Refuse && e.device.Match(device) })
	if len(found) == 0 {
		return "", false
	}
	return found[0].ID, true
}

// MuteConnection reports whether a new connection to the device has to be left without a word, and counts one use.
func (s *Set) MuteConnection(device string) (string, bool) {
	found := s.take(func(e *entry) bool { return e.Action.Mute && e.device.Match(device) })
	if len(found) == 0 {
		return "", false
	}
	return found[0].ID, true
}

// Refusing reports whether an unlimited Refuse rule stands for the device.
func (s *Set) Refusing(device string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.rules, func(e *entry) bool {
		return e.Action.Refuse && !e.limited && e.device.Match(device)
	})
}

func (s *Set) take(match func(*entry) bool) []Rule {
	s.mu.RLock()
	// The common case, no rule at all for this request, must not contend.
	hit := slices.ContainsFunc(s.rules, match)
	s.mu.RUnlock()
	if !hit {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Rule
	decided := false
	s.rules = slices.DeleteFunc(s.rules, func(e *entry) bool {
		additive := e.Action.Latency != nil || len(e.Action.JSONMerge) > 0
		if !match(e) || decided && !additive {
			return false
		}
		decided = decided || !additive
		out = append(out, e.Rule)
		if !e.limited {
			return false
		}
		e.Remaining--
		return e.Remaining == 0
	})
	return out
}

// Load reads a JSON list of rules.
func Load(r io.Reader) ([]Rule, error) {
	var rules []Rule
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&rules); err != nil {
		return nil, fmt.Errorf("read fault rules: %w", err)
	}
	for _, rule := range rules {
		if err := rule.Validate(); err != nil {
			return nil, err
		}
	}
	return rules, nil
}
