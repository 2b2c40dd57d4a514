// SPDX-License-Identifier: Apache-2.0

package host

import (
	"slices"
	"strings"
	"time"
)

// Faults are named misbehaviours of a host. The zero value is a healthy one.
type Faults struct {
	// Unreachable closes connections at once.
	Unreachable bool
	// UnreachableUntilAUX does so until the next AUX power cycle.
	UnreachableUntilAUX bool
	// SystemState is shown instead of the true one, for example "degraded" or "maintenance".
	SystemState string
	// NoTools has neither mst nor flint.
	NoTools bool
	// NoProcessList has no pgrep.
	NoProcessList bool
	// SudoPassword is wanted by sudo instead of that of the login.
	SudoPassword string
	// Hidden are the paths of devices that mst does not list; HiddenUntilAUX shows them after an AUX power cycle.
	Hidden         []string
	HiddenUntilAUX bool
	// FlashFailures is how often writing a device fails, by path; negative is always.
	FlashFailures map[string]int
	// FlashPending are the paths of devices that take an image, fail, and say that it was written before.
	FlashPending []string
	// VersionsUnchanged drops what was written at the next AUX power cycle.
	VersionsUnchanged bool
	// ShowRunning makes flint tell the running version beside a written one.
	ShowRunning bool
	// CutUploadAfter cuts the connection after so many bytes of an upload; StallUploadAfter swallows what follows.
	CutUploadAfter   int64
	StallUploadAfter int64
	// Commands are rules for commands; the first that matches counts.
	Commands []CommandFault
}

// CommandFault changes what commands do.
type CommandFault struct {
	// Match is a part of the command line.
	Match string
	// Remaining is how often it applies; 0 is always.
	Remaining int
	// Delay passes first.
	Delay time.Duration
	// Hang never answers. Cut closes the connection without an answer, after the command was done when Do is set.
	Hang bool
	Cut  bool
	Do   bool
	// Exit and Output are the answer; with neither Hang, Cut nor Exit set only the delay applies.
	Exit   int
	Output string
}

// SetFaults replaces all faults.
func (s *Server) SetFaults(f Faults) {
	s.mu.Lock()
	s.faults = f
	unreachable := f.Unreachable || f.UnreachableUntilAUX
	s.mu.Unlock()
	if unreachable {
		s.CutConnections()
	}
}

// commandFault finds the rule for a command and counts one use.
func (s *Server) commandFault(line string) (CommandFault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rules := s.faults.Commands
	at := slices.IndexFunc(rules, func(f CommandFault) bool { return strings.Contains(line, f.Match) })
	if at < 0 {
		return CommandFault{}, false
	}
	found := rules[at]
	switch found.Remaining {
	case 0:
	case 1:
		s.faults.Commands = slices.Delete(slices.Clone(rules), at, at+1)
	default:
		rules[at].Remaining--
	}
	return found, true
}
