// SPDX-License-Identifier: Apache-2.0

package image

import (
	"time"

	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// Timing is every wait of the update. Zero fields take their defaults.
type Timing struct {
	// UninstallPoll is the gap between looks at the removal of the old image,
	// UninstallLimit ends it. 5 s, 5 min.
	UninstallPoll, UninstallLimit time.Duration
	// HandoffPoll is the gap between looks at the installation, HandoffLimit ends
	// the wait for the switch to go down. 5 s, 10 min. As long is looked at the image
	// state before an installation counts as never begun.
	HandoffPoll, HandoffLimit time.Duration
	// SteadySettle passes before the first look at what runs, SteadyPoll between two.
	// 30 s, 10 s.
	SteadySettle, SteadyPoll time.Duration
	// SteadyWindows are the waits for the new image, one after the other. 5, 10,
	// 15 min.
	SteadyWindows []time.Duration
	// HostKeyLimit is how long SSH of the new image may take to answer. 2 min.
	HostKeyLimit time.Duration
	// FirstLogin is for the login that replaces an expired password.
	FirstLogin firstlogin.Timing
}

// steadyLimit is how long the new image may take to run.
func (t *Timing) steadyLimit() time.Duration {
	limit := t.SteadySettle + t.HostKeyLimit
	for _, window := range t.SteadyWindows {
		limit += window
	}
	return limit
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.UninstallPoll, 5 * time.Second},
		{&t.UninstallLimit, 5 * time.Minute},
		{&t.HandoffPoll, 5 * time.Second},
		{&t.HandoffLimit, 10 * time.Minute},
		{&t.SteadySettle, 30 * time.Second},
		{&t.SteadyPoll, 10 * time.Second},
		{&t.HostKeyLimit, 2 * time.Minute},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	t.FirstLogin = t.FirstLogin.WithDefaults()
	if len(t.SteadyWindows) == 0 {
		t.SteadyWindows = []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute}
	}
	return t
}

// Options of an Updater. All but Timing are required.
type Options struct {
	Devices *device.Opener
	Files   *source.Files
	Uploads *upload.Uploader
	// Upload bounds the upload of an image.
	Upload upload.Limits
	Timing Timing
}

// Updater updates images.
type Updater struct{ opts Options }

// New returns an Updater.
func New(opts Options) *Updater {
	opts.Timing = opts.Timing.withDefaults()
	return &Updater{opts}
}
