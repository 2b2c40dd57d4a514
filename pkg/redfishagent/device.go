// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Defaults of Timing.
const (
	DefaultTaskPollInterval = 5 * time.Second
	DefaultVerifyFirstDelay = 60 * time.Second
	DefaultVerifyInterval   = 60 * time.Second
	DefaultVerifyAttempts   = 5
	DefaultUntrackedLimit   = 20 * time.Minute
	DefaultUploadAttempts   = 5
	DefaultUploadPause      = 30 * time.Second
	DefaultUploadSettle     = 30 * time.Second
	DefaultRestartSettle    = time.Minute
	DefaultLostTaskWindow   = 5 * time.Minute
	DefaultPackagePause     = 30 * time.Second
	DefaultSupplyPushes     = 3
	DefaultUnitAttempts     = 2
	DefaultUnitSettle       = 30 * time.Second
	DefaultUnitRetrySettle  = time.Minute
	DefaultRecoveryGrace    = 30 * time.Second
	DefaultMaxUploads       = 64
	DefaultMaxConnections   = 1024
)

// Timing is every wait of the workflow that is not one of the device client.
// Zero fields take their defaults.
type Timing struct {
	// Redfish are the waits of the device client.
	Redfish redfish.Timing
	// TaskPoll governs how update tasks are polled. Its interval is 5 s.
	TaskPoll redfish.PollOptions
	// VerifyFirstDelay passes after an activation before versions are compared,
	// VerifyInterval between the VerifyAttempts comparisons.
	VerifyFirstDelay time.Duration
	VerifyInterval   time.Duration
	VerifyAttempts   int
	// UntrackedLimit bounds the wait for a new version when the device took an
	// image without naming a task.
	UntrackedLimit time.Duration
	// UploadAttempts uploads are tried, UploadPause or what the device asks for
	// apart, while it refuses them as not ready, or provably never got one.
	UploadAttempts int
	UploadPause    time.Duration
	// UploadSettle is how long the device is watched for the task of an upload
	// whose answer was lost or named none, before it counts as having none.
	UploadSettle time.Duration
	// RestartSettle is how long the device is watched for the restart that an
	// interrupted activation may have asked for, before it counts as not asked.
	RestartSettle time.Duration
	// LostTaskWindow is how long a new version may take to show after the device
	// has forgotten its task: it usually restarts then.
	LostTaskWindow time.Duration
	// PackagePause passes between two packages for one node, which its controller
	// needs to settle.
	PackagePause time.Duration
	// SupplyPushes bounds how often an image for all LiteOn power units at once is
	// sent while its answer is lost; then they are updated one by one.
	SupplyPushes int
	// UnitAttempts images are sent to one LiteOn power unit. UnitSettle passes
	// between two units, UnitRetrySettle before a second image for the same one.
	UnitAttempts    int
	UnitSettle      time.Duration
	UnitRetrySettle time.Duration
	// RecoveryGrace passes after a node that did not answer was brought back.
	RecoveryGrace time.Duration
}

// untracked gives a clock that tells when the wait for an update without a task
// is over.
func (t *Timing) untracked() (over func() bool) {
	end := time.Now().Add(t.UntrackedLimit)
	return func() bool { return !time.Now().Before(end) }
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.TaskPoll.Interval, DefaultTaskPollInterval},
		{&t.VerifyFirstDelay, DefaultVerifyFirstDelay},
		{&t.VerifyInterval, DefaultVerifyInterval},
		{&t.UntrackedLimit, DefaultUntrackedLimit},
		{&t.UploadPause, DefaultUploadPause},
		{&t.UploadSettle, DefaultUploadSettle},
		{&t.RestartSettle, DefaultRestartSettle},
		{&t.LostTaskWindow, DefaultLostTaskWindow},
		{&t.PackagePause, DefaultPackagePause},
		{&t.UnitSettle, DefaultUnitSettle},
		{&t.UnitRetrySettle, DefaultUnitRetrySettle},
		{&t.RecoveryGrace, DefaultRecoveryGrace},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{
		{&t.VerifyAttempts, DefaultVerifyAttempts},
		{&t.UploadAttempts, DefaultUploadAttempts},
		{&t.SupplyPushes, DefaultSupplyPushes},
		{&t.UnitAttempts, DefaultUnitAttempts},
	} {
		if *n.field <= 0 {
			*n.field = n.value
		}
	}
	return t
}

// InventoryProfile is what a node has to show before an update.
type InventoryProfile struct {
	// Names are entries of the firmware inventory, compared without regard to case.
	Names []string
	// FlintDevices counts the network devices by kind: cx7, cx8, bf3_nic.
	FlintDevices map[string]int
}

// Options configure the workflows of one agent.
type Options struct {
	// Pool holds the connections to the devices.
	Pool *redfish.Pool
	// FirmwareDir holds the images. Commands name files relative to it.
	FirmwareDir string
	// MaxUploads bounds the images that are sent at a time.
	MaxUploads int
	// MaxConnections bounds the devices that are read at length for their updates
	// at a time.
	MaxConnections int
	// Profiles are the expected inventories that nodes may name.
	Profiles map[string]InventoryProfile
	// Artifacts gives the files of the firmware catalogue; without it, commands
	// that need some are refused.
	Artifacts Artifacts
	// Images gives images to devices that fetch them themselves; without it, they
	// are refused.
	Images *ImageServer
	// InBand flashes network devices from the host; without it, commands with such
	// images are refused.
	InBand InBand
	// Diagnostics tune the examination of nodes. Its Store takes the bundles;
	// Collectors, Lost and Version are set here.
	Diagnostics diagnostics.Options
	// Collectors examine nodes by other means than Redfish.
	Collectors []CollectorsFor
	// Handlers are further jobs of the family's agent.
	Handlers map[job.Type]agent.Handler
	// Timing of the workflows.
	Timing Timing
	// Version of the build, for the User-Agent.
	Version string
}

// Devices runs the workflows.
type Devices struct {
	opts    Options
	uploads chan struct{}
	seats   seats
	images  *images
}

// New returns workflows that share one connection pool.
func New(opts Options) *Devices {
	opts.Timing = opts.Timing.withDefaults()
	if opts.MaxUploads <= 0 {
		opts.MaxUploads = DefaultMaxUploads
	}
	if opts.MaxConnections <= 0 {
		opts.MaxConnections = DefaultMaxConnections
	}
	if opts.Pool == nil {
		opts.Pool = redfish.NewPool(redfish.PoolOptions{})
	}
	return &Devices{
		opts: opts, uploads: make(chan struct{}, opts.MaxUploads), seats: make(seats, opts.MaxConnections),
		images: newImages(opts.FirmwareDir),
	}
}

// Close closes the idle connections to devices.
func (d *Devices) Close() { d.opts.Pool.Close() }

// Handlers are the jobs these agents do.
func (d *Devices) Handlers() map[job.Type]agent.Handler {
	handlers := map[job.Type]agent.Handler{
		job.TypeFirmwareUpdate: d.UpdateFirmware, job.TypeNodeDiagnostics: d.diagnosis().Run,
	}
	maps.Copy(handlers, d.opts.Handlers)
	return handlers
}

// holder opens the device of a task or a query.
type holder interface {
	Target() *rackbusv1.NodeTarget
	Credentials(kind node.EndpointKind) (node.Credentials, error)
	Guard() agent.Guard
}

// errNodeType says that a node was sent to the wrong agent.
var errNodeType = errors.New("this agent does not drive nodes of the type")

// client returns a client for the node's controller. userAgent lets the device's
// own log tell which job, under which hold, has sent a request.
func (d *Devices) client(h holder, userAgent string, log *slog.Logger) (*redfish.Client, error) {
	target := h.Target()
	profile, ok := redfish.LookupProfile(target.GetNodeType())
	if !ok {
		return nil, fmt.Errorf("%w: %s", errNodeType, target.GetNodeType())
	}
	login, err := h.Credentials(node.EndpointBMC)
	if err != nil {
		return nil, err
	}
	bmc := target.GetBmc()
	return redfish.New(redfish.Endpoint{
		Address: bmc.GetAddress(), Port: uint16(bmc.GetPort()), HostName: bmc.GetHostName(),
		Username: login.User, Password: login.Password,
	}, redfish.Options{
		Profile: profile, Guard: h.Guard(), Pool: d.opts.Pool, Timing: d.opts.Timing.Redfish,
		UserAgent: userAgent, Logger: log,
	})
}

// userAgent names the program, and for a job its id and hold.
func (d *Devices) userAgent(t *agent.Task) string {
	name := "Rackbus/" + d.opts.Version
	if t == nil {
		return name
	}
	return fmt.Sprintf("%s (job %s; epoch %d)", name, t.ID(), t.Epoch())
}
