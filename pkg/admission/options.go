// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
)

// OnBusy is what happens to a node that a job holds.
type OnBusy uint8

// What happens to a busy node.
const (
	// OnBusyDefault takes what the options say for the job's type.
	OnBusyDefault OnBusy = iota
	// OnBusyRefuse refuses the node and names the holder.
	OnBusyRefuse
	// OnBusyQueue lets the job wait behind the holder.
	OnBusyQueue
	// OnBusySupersede replaces jobs on the node that have not started, and
	// refuses the node when one has.
	OnBusySupersede
)

var onBusyNames = [...]string{"default", "refuse", "queue", "supersede"}

// String returns the name as configuration and request metadata spell it.
func (o OnBusy) String() string {
	if int(o) < len(onBusyNames) {
		return onBusyNames[o]
	}
	return fmt.Sprintf("on-busy(%d)", uint8(o))
}

// ParseOnBusy finds what String names; "" is OnBusyDefault.
func ParseOnBusy(name string) (OnBusy, bool) {
	if name == "" {
		return OnBusyDefault, true
	}
	for i, n := range onBusyNames {
		if n == name {
			return OnBusy(i), true
		}
	}
	return OnBusyDefault, false
}

// maxChunkNodes is how many nodes one transaction holds: four messages each,
// below the broker's limit of 1,000 for all.
const maxChunkNodes = 240

// PointBetweenChunks is the failpoint behind each chunk of a batch but the last.
const PointBetweenChunks = "admission.between_chunks"

// Options configure an Admitter. Conn is required, everything else has a default.
type Options struct {
	Conn *bus.Conn
	// MaxTrackedJobs bounds the records kept, of running and ended jobs, parents
	// included; default 10,000.
	MaxTrackedJobs int
	// Retention is how long an ended job can be read; default 24 h.
	Retention time.Duration
	// QueueDeadline is how long a job may wait for an agent; default 1 h.
	QueueDeadline time.Duration
	// ParkedDeadline is how long a job may wait behind another; default 24 h.
	ParkedDeadline time.Duration
	// RolloutDeadline is how long a batch may take until all of its waves have
	// begun; default 168 h.
	RolloutDeadline time.Duration
	// RunLimits is how long jobs may run, by type, in place of the type's own.
	RunLimits map[job.Type]time.Duration
	// OnBusy is what happens to busy nodes, by type, when the request leaves it
	// open; the default is OnBusyRefuse.
	OnBusy map[job.Type]OnBusy
	// MaxParked is how many jobs may wait behind one node; default 8.
	MaxParked int
	// AdmitTimeout is how long a batch may stay half admitted before the jobs
	// service closes it; default 60 s.
	AdmitTimeout time.Duration
	// Limit bounds one admission whose context has no nearer deadline; default
	// 30 s. It is reached under heavy contention only.
	Limit time.Duration
	// BrokerLimit is how long an admission goes on without an answer of the
	// broker. Losing a stream leader stops writes for some seconds; clients give
	// up after 10 s. Default 8 s.
	BrokerLimit time.Duration
	// ConflictPause is the least pause before a lost race is run again, and
	// grows with the tries up to MaxConflictPause; defaults 5 ms and 100 ms.
	ConflictPause    time.Duration
	MaxConflictPause time.Duration
	// BrokerPause is the pause before a broker that is away is asked again;
	// default 250 ms.
	BrokerPause time.Duration
	// ReapInterval is the least pause between two searches for expired jobs at
	// the limit of tracked jobs; default 5 s.
	ReapInterval time.Duration
	// AnnounceLimit bounds the publishing of a batch's first event before the
	// answer, and at Close that of all others; default 2 s.
	AnnounceLimit time.Duration
	// OnConflict is called for every lost race; for metrics.
	OnConflict func()
	// Failpoints let crash tests end the process at named points; nil has none.
	Failpoints *failpoint.Points
	// Random draws job ids; default crypto/rand.
	Random io.Reader
	// Logger receives refusals and faults; default slog.Default().
	Logger *slog.Logger

	// chunkNodes is smaller in tests.
	chunkNodes int
	// afterChunk is called in tests between two chunks.
	afterChunk func(chunk int)
}

// ErrInvalidOptions is wrapped by every error about Options.
var ErrInvalidOptions = errors.New("admission: invalid options")

func (o Options) withDefaults() (Options, error) {
	if o.Conn == nil {
		return o, fmt.Errorf("%w: no bus connection", ErrInvalidOptions)
	}
	if o.MaxTrackedJobs < 0 || o.MaxParked < 0 {
		return o, fmt.Errorf("%w: negative limit", ErrInvalidOptions)
	}
	for value, standard := range map[*int]int{&o.MaxTrackedJobs: 10_000, &o.MaxParked: 8, &o.chunkNodes: maxChunkNodes} {
		if *value == 0 {
			*value = standard
		}
	}
	for value, standard := range map[*time.Duration]time.Duration{
		&o.Retention:        24 * time.Hour,
		&o.QueueDeadline:    time.Hour,
		&o.ParkedDeadline:   24 * time.Hour,
		&o.RolloutDeadline:  168 * time.Hour,
		&o.AdmitTimeout:     time.Minute,
		&o.Limit:            30 * time.Second,
		&o.BrokerLimit:      8 * time.Second,
		&o.ConflictPause:    5 * time.Millisecond,
		&o.MaxConflictPause: 100 * time.Millisecond,
		&o.BrokerPause:      250 * time.Millisecond,
		&o.ReapInterval:     5 * time.Second,
		&o.AnnounceLimit:    2 * time.Second,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	if o.OnConflict == nil {
		o.OnConflict = func() {}
	}
	if o.afterChunk == nil {
		o.afterChunk = func(int) {}
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o, nil
}

func (o *Options) runLimit(t job.Type) time.Duration {
	if limit := o.RunLimits[t]; limit > 0 {
		return limit
	}
	if info, ok := t.Info(); ok {
		return info.RunLimit
	}
	return time.Hour
}

func (o *Options) onBusy(t job.Type, asked OnBusy) OnBusy {
	if asked != OnBusyDefault {
		return asked
	}
	if p := o.OnBusy[t]; p != OnBusyDefault {
		return p
	}
	return OnBusyRefuse
}
