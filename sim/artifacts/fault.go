// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/sim/internal/glob"
)

// ErrInvalidFault is wrapped by errors of AddFault.
var ErrInvalidFault = errors.New("invalid artifact fault")

// Fault is how the server treats matching requests. Members that do not exclude each other can be combined.
type Fault struct {
	// Method restricts the fault, for example to "GET"; empty is any.
	Method string
	// Status answers with an error code and no content.
	Status int
	// RetryAfter is sent with Status, in seconds, when it is not 0.
	RetryAfter int
	// Redirect answers 302, or Status if that is set, with this Location: a path, a URL of another host, of another
	// scheme, or with a private address. {path} in it is the request's path.
	Redirect string
	// CutAfter sends this many bytes of the body and then breaks the connection off; 0 does not. CutAtOnce does so
	// after the head.
	CutAfter  int64
	CutAtOnce bool
	// StallAfter sends this many bytes of the body and then nothing more, until the client leaves; 0 does not.
	StallAfter int64
	// LengthDelta is added to the Content-Length. With more than there is, the connection closes too early for the
	// client; with less, the client sees a shorter file.
	LengthDelta int64
	// NoLength sends no Content-Length.
	NoLength bool
	// Corrupt flips a bit in the middle of the file.
	Corrupt bool
	// Empty makes the file one of zero bytes.
	Empty bool
	// BytesPerSecond is how fast the body is sent; 0 is as fast as it goes.
	BytesPerSecond int64
	// Latency passes before the answer.
	Latency time.Duration
	// NoRange ignores ranges: 200 with the whole file. RangeStatus answers a request for a range with this status.
	NoRange     bool
	RangeStatus int
	// WrongRange answers a range with 206 and the bytes from the start of the file.
	WrongRange bool
	// FreshETag gives every answer an ETag of its own; NoETag gives none and no Last-Modified.
	FreshETag bool
	NoETag    bool
	// Remaining is how often the fault still applies; 0 is without limit.
	Remaining int
}

type entry struct {
	Fault
	pattern glob.Pattern
	limited bool
}

func (f Fault) validate() error {
	switch {
	case f.Status != 0 && (f.Status < 300 || f.Status > 599), f.RangeStatus != 0 && (f.RangeStatus < 300 || f.RangeStatus > 599):
		return fmt.Errorf("%w: status %d, for ranges %d", ErrInvalidFault, f.Status, f.RangeStatus)
	case f.Remaining < 0 || f.CutAfter < 0 || f.StallAfter < 0 || f.BytesPerSecond < 0:
		return fmt.Errorf("%w: negative number", ErrInvalidFault)
	}
	return nil
}

// AddFault puts a fault in force for paths that match a pattern, as in "fw/*"; "" is every path.
func (s *Server) AddFault(pattern string, f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &entry{Fault: f, pattern: glob.Compile(pattern), limited: f.Remaining > 0})
	return nil
}

// ClearFaults takes all faults out.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// take returns the fault for a request and counts one use of it.
func (s *Server) take(method, path string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, e := range s.faults {
		if !e.pattern.Match(path) || e.Method != "" && e.Method != method {
			continue
		}
		if e.limited {
			if e.Remaining--; e.Remaining == 0 {
				s.faults = append(s.faults[:i:i], s.faults[i+1:]...)
			}
		}
		return e.Fault
	}
	return Fault{}
}
