// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// Shared is one broker with one agent for all tests of a package that need no agent
// of their own. It starts with the first test that asks for it.
type Shared struct {
	family node.Family

	mu    sync.Mutex
	life  *life
	rig   *Rig
	tests int
}

// NewShared returns what the tests of a package share. Close it behind the last test.
func NewShared(family node.Family) *Shared { return &Shared{family: family} }

// Rig returns the shared rig for a test. Images of the test are in a directory of
// their own, and its devices have to be in the rack named Rack.
func (s *Shared) Rig(t testing.TB) *Rig {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rig == nil {
		s.life = &life{}
		s.rig = newRig(s.life, s.family, sharedBusTiming())
		s.rig.Start()
	}
	s.tests++
	r := *s.rig
	r.T, r.Rack = t, "rack-"+strconv.Itoa(s.tests)
	r.below, r.FirmwareDir = r.Rack, filepath.Join(s.rig.FirmwareDir, r.Rack)
	require.NoError(t, os.Mkdir(r.FirmwareDir, 0o700))
	return &r
}

// Close ends the agent and the broker.
func (s *Shared) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life != nil {
		s.life.end()
		s.life, s.rig = nil, nil
	}
}

// sharedBusTiming has leases that outlast any pause of a busy machine: nobody takes
// over from the shared agent.
func sharedBusTiming() bus.Timing {
	t := Steady(BusTiming())
	t.AckWait = Patience
	return t
}

// places are the ends of the event partitions as far as anybody has read, and where
// they were when jobs were admitted. Nothing that lies before is of interest to a job.
type places struct {
	mu    sync.Mutex
	ends  [bus.Partitions]uint64
	begun map[job.ID]uint64
}

func (p *places) begin(id job.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun[id] = p.ends[id.Partition(bus.Partitions)]
}

func (p *places) beginning(id job.ID) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun[id]
}

func (p *places) read(partition int, sequence uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends[partition] = max(p.ends[partition], sequence)
}

// life is the testing.TB of what outlives the test that starts it.
type life struct {
	testing.TB
	mu       sync.Mutex
	cleanups []func()
}

func (*life) Helper()                  {}
func (*life) Context() context.Context { return context.Background() }
func (*life) FailNow()                 { panic("what the tests share has failed") }

// Error and the like cannot name a test, and end all.
func (*life) Error(args ...any)                 { panic(fmt.Sprint(args...)) }
func (*life) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*life) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (*life) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (l *life) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

func (l *life) TempDir() string {
	dir, err := os.MkdirTemp("", "rackbus-test-")
	require.NoError(l, err)
	l.Cleanup(func() { require.NoError(l, os.RemoveAll(dir)) })
	return dir
}

func (l *life) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
}
