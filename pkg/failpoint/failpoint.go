// SPDX-License-Identifier: Apache-2.0

// Package failpoint names the places in the code at which crash tests make a
// process die. Without being armed they do nothing.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// EnvVar arms failpoints of a process: NAME=ACTION or NAME=ACTION@N, separated
// by semicolons. The action happens the N-th time the point is reached, counted
// from 1, and every time without N.
const EnvVar = "RACKBUS_FAILPOINTS"

// ErrInjected is wrapped by the error of the action "error".
var ErrInjected = errors.New("failpoint: injected failure")

// The actions.
const (
	// ActionKill ends the process with SIGKILL: nothing is cleaned up.
	ActionKill = "kill"
	// ActionStop freezes the process with SIGSTOP.
	ActionStop = "stop"
	// ActionError makes Hit return ErrInjected.
	ActionError = "error"
)

// Points are the armed failpoints of a process. A nil *Points has none.
type Points struct {
	mu    sync.Mutex
	armed map[string]*point
}

type point struct {
	do  func() error
	on  int
	hit int
}

// FromEnv returns the failpoints that the environment arms, nil when it arms
// none.
func FromEnv() (*Points, error) {
	text := os.Getenv(EnvVar)
	if text == "" {
		return nil, nil
	}
	return Parse(text)
}

// Parse reads what EnvVar holds.
func Parse(text string) (*Points, error) {
	p := &Points{}
	for entry := range strings.SplitSeq(text, ";") {
		name, action, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok {
			return nil, fmt.Errorf("failpoint %q: want NAME=ACTION", entry)
		}
		action, count, counted := strings.Cut(action, "@")
		on := 0
		if counted {
			n, err := strconv.Atoi(count)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("failpoint %s: %q is no count from 1 on", name, count)
			}
			on = n
		}
		do, err := actionOf(name, action)
		if err != nil {
			return nil, err
		}
		p.Arm(name, on, do)
	}
	return p, nil
}

func actionOf(name, action string) (func() error, error) {
	switch action {
	case ActionKill:
		return func() error { return syscall.Kill(os.Getpid(), syscall.SIGKILL) }, nil
	case ActionStop:
		return func() error { return syscall.Kill(os.Getpid(), syscall.SIGSTOP) }, nil
	case ActionError:
		return func() error { return fmt.Errorf("%w at %s", ErrInjected, name) }, nil
	}
	return nil, fmt.Errorf("failpoint %s: unknown action %q", name, action)
}

// Arm makes the on-th hit of a point call do, or every hit when on is 0. An
// earlier arming of the point is replaced.
func (p *Points) Arm(name string, on int, do func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed == nil {
		p.armed = make(map[string]*point)
	}
	p.armed[name] = &point{do: do, on: on}
}

// Hit says that the process has reached a point. Its error must end what the
// caller is doing, as if the process had died there.
func (p *Points) Hit(name string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	pt := p.armed[name]
	due := false
	if pt != nil {
		pt.hit++
		due = pt.on == 0 || pt.hit == pt.on
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	return pt.do()
}
