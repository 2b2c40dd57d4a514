// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/services/jobs/internal/coldreboot"
	"github.com/rackbus/rackbus/services/jobs/internal/timers"
)

// ErrInvalidOption is wrapped by every error about Options.
var ErrInvalidOption = errors.New("jobs: invalid option")

// commandMargin is how long a command outlives the last moment at which its job
// can be claimed.
const commandMargin = time.Hour

// Limits say how long whom to wait for when a job has to end; see
// DefaultLimits.
type Limits = timers.Limits

// ColdRebootTiming are the waits of cold reboots.
type ColdRebootTiming = coldreboot.Timing

// DefaultLimits returns the limits of an installation.
func DefaultLimits() Limits { return timers.DefaultLimits() }

// Options configure a Service. Conn is required; everything else has a default.
type Options struct {
	// Conn is the connection to the bus. The service does not close it.
	Conn *bus.Conn
	// Instance names the replica in leases and logs; default "jobs".
	Instance string
	// Retention is how long a job family can be read after its top-level job has
	// ended (terminal_job_ttl); default 24 h.
	Retention time.Duration
	// FirmwareDir is the directory below which ended jobs have directories
	// removed. Replicas must share it. While it is empty, nothing is removed.
	FirmwareDir string
	// Artifacts says from where firmware objects may be downloaded, and how. The
	// zero policy allows nothing.
	Artifacts artifact.Options
	// ArtifactsInStore keeps downloaded files in the object store of the bus in
	// place of FirmwareDir, which then need not be shared.
	ArtifactsInStore bool
	// Diagnose has the registered nodes of jobs that have failed examined at once, by
	// jobs that are admitted with Admission, whose Conn and Logger are set here.
	Diagnose  bool
	Admission admission.Options
	// Limits of ending jobs; default DefaultLimits.
	Limits Limits

	// Opener opens the secrets of requests that this service itself works on; it
	// has the keys of the family "rack". Without it such requests fail.
	Opener *seal.Opener
	// ColdReboot are the waits of cold reboots; zero fields take their defaults.
	ColdReboot ColdRebootTiming
	// DrainTimeout bounds the end of jobs that this service works on when it
	// stops; zero takes the default of agents.
	DrainTimeout time.Duration
	// ProgressInterval is the least pause between progress reports of one such
	// job; zero takes the default of agents.
	ProgressInterval time.Duration

	// CommitInterval is how long the first change of a fold commit waits for
	// others; default 50 ms.
	CommitInterval time.Duration
	// Retry is the pause after the bus could not do something; default 250 ms.
	Retry time.Duration
	// QueueDeadline is how long a job that its wave has started may wait for an
	// agent; default 1 h.
	QueueDeadline time.Duration
	// ParkedLife is how long the command of a job that waited in line can be
	// claimed, beyond the job's run limit; default 25 h: the queue deadline of a
	// waiting job and one hour.
	ParkedLife time.Duration
	// CachedRecords bounds the records each active partition keeps in memory;
	// default 20,000.
	CachedRecords int
	// Balance is the pause between looks at how many replicas share the
	// partitions; default 3 s.
	Balance time.Duration
	// StreamCheck is the pause between looks at whether all streams and consumers are
	// there as needed; default 15 s. What is missing is created again.
	StreamCheck time.Duration
	// Recount is the pause between recounts of the tracked records; default
	// 10 min. CapacityEvery is how often the capacity metric is read; default
	// 15 s. RecountSettle is how long a difference must last; default 2 s.
	Recount       time.Duration
	CapacityEvery time.Duration
	RecountSettle time.Duration
	// StopTimeout bounds handing the leases over at the end; default 5 s.
	StopTimeout time.Duration

	// Logger receives one line per change of state; nil discards them.
	Logger *slog.Logger
	// Registerer takes the metrics; nil keeps them private.
	Registerer prometheus.Registerer
	// Tracer makes the spans of the jobs that this service works on; nil makes none.
	Tracer trace.TracerProvider
	// Failpoints are armed by crash tests only.
	Failpoints *failpoint.Points
}

func (o Options) withDefaults() (Options, error) {
	if o.Conn == nil {
		return o, fmt.Errorf("%w: Conn is missing", ErrInvalidOption)
	}
	if o.Instance == "" {
		o.Instance = "jobs"
	}
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits()
	}
	if o.CachedRecords == 0 {
		o.CachedRecords = 20_000
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"Retention", &o.Retention, 24 * time.Hour},
		{"CommitInterval", &o.CommitInterval, 50 * time.Millisecond},
		{"Retry", &o.Retry, 250 * time.Millisecond},
		{"QueueDeadline", &o.QueueDeadline, time.Hour},
		{"ParkedLife", &o.ParkedLife, 24*time.Hour + commandMargin},
		{"Balance", &o.Balance, 3 * time.Second},
		{"StreamCheck", &o.StreamCheck, 15 * time.Second},
		{"Recount", &o.Recount, 10 * time.Minute},
		{"CapacityEvery", &o.CapacityEvery, 15 * time.Second},
		{"RecountSettle", &o.RecountSettle, 2 * time.Second},
		{"StopTimeout", &o.StopTimeout, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
		if *d.value < 0 {
			return o, fmt.Errorf("%w: %s is negative", ErrInvalidOption, d.name)
		}
	}
	if o.CachedRecords < 0 {
		return o, fmt.Errorf("%w: CachedRecords is negative", ErrInvalidOption)
	}
	return o, nil
}
