// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Check reports why a part of the process is not ready, or nil.
type Check func(ctx context.Context) error

// Readiness collects the named checks of a process. The zero value is ready and
// safe for concurrent use.
type Readiness struct {
	// Timeout bounds one check; default 2 s.
	Timeout time.Duration

	mu     sync.Mutex
	checks map[string]Check
}

// Add registers a check; one of the same name is replaced.
func (r *Readiness) Add(name string, check Check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checks == nil {
		r.checks = make(map[string]Check)
	}
	r.checks[name] = check
}

// NotReady is the error of Readiness.Check: what is not ready, by name.
type NotReady struct {
	Faults map[string]error
}

// Error lists the faults, one per line, in the order of their names.
func (e *NotReady) Error() string {
	lines := make([]string, 0, len(e.Faults))
	for name, err := range e.Faults {
		lines = append(lines, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Check runs all checks at once and returns a *NotReady when any fails or does
// not return in time. Such a check goes on in the background until it minds its
// context.
func (r *Readiness) Check(ctx context.Context) error {
	r.mu.Lock()
	checks := make(map[string]Check, len(r.checks))
	for name, check := range r.checks {
		checks[name] = check
	}
	timeout := r.Timeout
	r.mu.Unlock()
	if timeout <= 0 {
		timeout = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	type result struct {
		name string
		err  error
	}
	results := make(chan result, len(checks)) // late checks must not block
	for name, check := range checks {
		go func() { results <- result{name, check(ctx)} }()
	}
	faults := make(map[string]error)
	for len(checks) > 0 {
		select {
		case res := <-results:
			delete(checks, res.name)
			if res.err != nil {
				faults[res.name] = res.err
			}
		case <-ctx.Done():
			for name := range checks {
				faults[name] = fmt.Errorf("no answer within %s", timeout)
			}
			checks = nil
		}
	}
	if len(faults) > 0 {
		return &NotReady{Faults: faults}
	}
	return nil
}
