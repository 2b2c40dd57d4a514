// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Entry is one thing that a client did. Passwords are in none.
type Entry struct {
	At time.Time
	// Command is the command line, as the host's shell got it; or the path of a file with Upload set.
	Command string
	Upload  bool
	// Exit is the exit status; -1 when the connection was cut before.
	Exit int
}

func (s *Server) record(e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.At = time.Now()
	s.log = append(s.log, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// begin notes a command in progress.
func (s *Server) begin(line string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[line]++
	close(s.changed)
	s.changed = make(chan struct{})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.running[line]--; s.running[line] == 0 {
			delete(s.running, line)
		}
	}
}

// Log returns the ended commands and uploads whose command line holds a text, in the order in which they ended.
func (s *Server) Log(part string) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Entry
	for _, e := range s.log {
		if strings.Contains(e.Command, part) {
			out = append(out, e)
		}
	}
	return out
}

// WaitRunning returns as soon as a command whose line holds a text is in progress, or with the context's error.
func (s *Server) WaitRunning(ctx context.Context, part string) error {
	for {
		s.mu.Lock()
		changed := s.changed
		for line := range s.running {
			if strings.Contains(line, part) {
				s.mu.Unlock()
				return nil
			}
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for a command with %q: %w", part, ctx.Err())
		}
	}
}
