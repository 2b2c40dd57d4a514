// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"time"

	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// Timing is every wait of an update. Zero fields take their defaults.
type Timing struct {
	// Inventory bounds reads of the inventory and of settings, and the request for a
	// power cycle; Install the request that begins an installation, and looks at it.
	// 120 s, 1200 s.
	Inventory, Install time.Duration
	// InstallPoll is the gap between looks at an installation, InstallLimit ends it,
	// restarts included. 20 s, 1 h.
	InstallPoll, InstallLimit time.Duration
	// ReadAttempts reads, ReadPause apart, are made before a look counts as failed. 3,
	// 5 s.
	ReadAttempts int
	ReadPause    time.Duration
	// InstallSettle is how long an installation of which no answer came may take to
	// show. 10 min.
	InstallSettle time.Duration
	// RebootPoll is the gap between looks whether a switch is away or back,
	// RebootProbe bounds one, RebootLimit all of them, ImageRebootLimit where an image
	// is installed. 30 s, 30 s, 4 min, 30 min.
	RebootPoll, RebootProbe, RebootLimit, ImageRebootLimit time.Duration
	// FetchPoll and FetchLimit are for taking over a bundle. 5 s, 10 min.
	FetchPoll, FetchLimit time.Duration
	// ASICPoll and ASICLimit are for the settings of the ASIC firmware. 10 s, 2 min.
	ASICPoll, ASICLimit time.Duration
	// CycleProbes looks, CyclePoll apart and each within CycleProbe, show whether the
	// switch has gone and come back. 45, 15 s, 5 s.
	CycleProbes           int
	CyclePoll, CycleProbe time.Duration
	// CycleSettle is how long a switch is watched for the power cycle that an
	// interrupted activation may have asked for. 1 min.
	CycleSettle time.Duration
	// BMCPoll is the gap between reads of the power state after a power cycle through
	// the BMC, BMCLimit ends the wait for On, BMCGrace follows. 15 s, 10 min, 30 s.
	BMCPoll, BMCLimit, BMCGrace time.Duration
	// VerifyFirstDelay passes before versions are compared, VerifyInterval between
	// the VerifyAttempts comparisons. 60 s, 60 s, 5.
	VerifyFirstDelay, VerifyInterval time.Duration
	VerifyAttempts                   int
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Inventory, 2 * time.Minute},
		{&t.Install, 20 * time.Minute},
		{&t.InstallPoll, 20 * time.Second},
		{&t.InstallLimit, time.Hour},
		{&t.ReadPause, 5 * time.Second},
		{&t.InstallSettle, 10 * time.Minute},
		{&t.RebootPoll, 30 * time.Second},
		{&t.RebootProbe, 30 * time.Second},
		{&t.RebootLimit, 4 * time.Minute},
		{&t.ImageRebootLimit, 30 * time.Minute},
		{&t.FetchPoll, 5 * time.Second},
		{&t.FetchLimit, 10 * time.Minute},
		{&t.ASICPoll, 10 * time.Second},
		{&t.ASICLimit, 2 * time.Minute},
		{&t.CyclePoll, 15 * time.Second},
		{&t.CycleProbe, 5 * time.Second},
		{&t.CycleSettle, time.Minute},
		{&t.BMCPoll, 15 * time.Second},
		{&t.BMCLimit, 10 * time.Minute},
		{&t.BMCGrace, 30 * time.Second},
		{&t.VerifyFirstDelay, time.Minute},
		{&t.VerifyInterval, time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{{&t.ReadAttempts, 3}, {&t.CycleProbes, 45}, {&t.VerifyAttempts, 5}} {
		if *n.field <= 0 {
			*n.field = n.value
		}
	}
	return t
}

// Limits are those of the uploads.
type Limits struct {
	// Component is for firmware, Bundle for a package for all components, Image for
	// an image of the operating system, Push for files that are not installed.
	Component, Bundle, Image, Push upload.Limits
}

// Options of an Updater. All but Timing are required.
type Options struct {
	Devices *device.Opener
	Files   *source.Files
	Uploads *upload.Uploader
	Limits  Limits
	Timing  Timing
}

// Updater updates firmware.
type Updater struct{ opts Options }

// New returns an Updater.
func New(opts Options) *Updater {
	opts.Timing = opts.Timing.withDefaults()
	return &Updater{opts}
}
