// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
)

const (
	// flashTries is how often a device is flashed that fails.
	flashTries = 2
	// flashParallel bounds the devices that are flashed at a time: OpenSSH takes ten
	// sessions on a connection.
	flashParallel = 8
)

// prepareFlash skips the stage when every device has its version.
func (r *run) prepareFlash(context.Context) error {
	switch {
	case len(r.pending()) > 0:
		return nil
	case r.Applied():
		return agent.Skip("the images are written already and wait for the activation")
	default:
		return agent.Skip(skipped)
	}
}

// pending are the devices that are still to be flashed.
func (r *run) pending() []*deviceState {
	var out []*deviceState
	for i := range r.state.Devices {
		if d := &r.state.Devices[i]; d.Flash == flashNeeded {
			out = append(out, d)
		}
	}
	return out
}

// flash writes the images, to all devices at a time, and once more to those that
// fail.
func (r *run) flash(ctx context.Context) error {
	if slices.ContainsFunc(r.state.Devices, func(d deviceState) bool { return d.Flash == flashSent }) {
		return agent.Unknown(errors.New("devices were flashed whose outcome is not known yet"))
	}
	h, err := r.f.connect(r.t)
	if err != nil {
		return err
	}
	defer h.close()
	if err := r.restage(ctx, h); err != nil {
		return fail(phaseUpdate, "prepare the images on the host", again(err))
	}
	for todo := r.pending(); len(todo) > 0; todo = r.pending() {
		todo = slices.DeleteFunc(todo, func(d *deviceState) bool { return d.Tries >= flashTries })
		if len(todo) == 0 {
			break
		}
		if err := r.round(ctx, h, todo); err != nil {
			return err
		}
	}
	if len(r.pending()) > 0 {
		r.tidy(ctx, h)
		return r.flashFailed()
	}
	return r.save()
}

// restage copies the images again when the host has lost them: it was restarted
// since, and its directory for temporary files with it.
func (r *run) restage(ctx context.Context, h *host) error {
	var tests []string
	for _, d := range r.pending() {
		tests = append(tests, "test -f "+ssh.Quote(path.Join(r.state.Dir, d.File)))
	}
	if r.state.Dir != "" {
		_, err := h.plain(ctx, strings.Join(tests, " && "), h.timing.Query)
		var exit *ssh.ExitError
		if !errors.As(err, &exit) {
			return err
		}
	}
	_, err := r.copyImages(ctx, h)
	return err
}

// round flashes devices in parallel. A device that fails may be tried again; an
// error ends the stage: the hold was lost, or an outcome is unknown.
func (r *run) round(ctx context.Context, h *host, todo []*deviceState) error {
	var paths []string
	for _, d := range todo {
		d.Flash = flashSent
		d.Tries++
		paths = append(paths, d.Path)
	}
	r.t.Within(r.flashLimit(todo) + r.f.opts.Timing.Clean)
	r.t.InFlight("flash of " + strings.Join(paths, ", "))
	if err := r.u.State.Save(ctx, r.state); err != nil {
		return err
	}
	slots := make(chan struct{}, flashParallel)
	results := make([]error, len(todo))
	done := 0
	var wg sync.WaitGroup
	for i, d := range todo {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = r.flashOne(ctx, h, d)
			r.mu.Lock()
			defer r.mu.Unlock()
			done++
			r.t.Progress(100*done/len(todo), fmt.Sprintf("Flashing network devices (%d of %d ended)", done, len(todo)))
		})
	}
	wg.Wait()
	var unknown []error
	for i, err := range results {
		switch {
		case err == nil, failed(err):
		case lost(err):
			unknown = append(unknown, fmt.Errorf("%s: %w", todo[i].Path, err))
		default:
			return err
		}
	}
	if len(unknown) > 0 {
		return agent.Unknown(errors.Join(unknown...))
	}
	r.t.InFlight("")
	return r.save()
}

// lost reports a command whose outcome is unknown.
func lost(err error) bool {
	var e *ssh.Error
	return errors.As(err, &e) && e.OutcomeUnknown()
}

// failed reports a command that ran and failed, or was never sent.
func failed(err error) bool {
	var e *ssh.Error
	return errors.As(err, new(*ssh.ExitError)) || errors.As(err, &e) && !e.OutcomeUnknown() && !errors.Is(err, ssh.ErrNotHeld)
}

// flashOne flashes a device and notes its outcome as soon as it is known.
func (r *run) flashOne(ctx context.Context, h *host, d *deviceState) error {
	err := h.flash(ctx, d.Path, path.Join(r.state.Dir, d.File))
	if err == nil {
		if err := r.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		d.Flash, d.Error = flashDone, ""
	case failed(err):
		d.Flash, d.Error = flashNeeded, err.Error()
	}
	r.t.Logger().Info("device flashed", "op", "flash", "device", d.Path, "psid", d.PSID,
		"previous", d.Previous, "expected", d.Expected, "attempt", d.Tries, "err", err)
	if serr := r.u.State.Save(ctx, r.state); err == nil {
		return serr
	}
	return err
}

// flashFailed tells which devices have the image and which have not.
func (r *run) flashFailed() error {
	var written, missing []string
	for _, d := range r.state.Devices {
		switch d.Flash {
		case flashDone:
			written = append(written, d.Path)
		case flashNeeded, flashSent:
			missing = append(missing, d.Path+": "+cmp.Or(d.Error, "the device still shows its old version"))
		case flashNone:
		}
	}
	text := "flash network devices: " + strings.Join(missing, "; ")
	if len(written) > 0 {
		text += "; written, and in force after the next power cycle: " + strings.Join(written, ", ")
	}
	return agent.Fail(job.FailureFlashFailed, phaseUpdate, text, nil)
}

// observeFlash reads back what has become of devices whose flash was begun. A
// device that shows the version of its image is never flashed again.
func (r *run) observeFlash(ctx context.Context) (agent.Observation, error) {
	seen, err := r.readBack(ctx)
	if err != nil {
		return agent.ObservedUnknown, fail(phaseUpdate, "read back the flashed devices", again(err))
	}
	return seen, r.save()
}

func (r *run) readBack(ctx context.Context) (agent.Observation, error) {
	h, err := r.f.connect(r.t)
	if err != nil {
		return agent.ObservedUnknown, err
	}
	defer h.close()
	if err := h.waitReady(ctx, r.t, r.progress); err != nil {
		return agent.ObservedUnknown, err
	}
	if err := h.idle(ctx, r.t); err != nil {
		return agent.ObservedUnknown, err
	}
	started := false
	for i := range r.state.Devices {
		d := &r.state.Devices[i]
		if d.Flash != flashSent {
			continue
		}
		if !started {
			// A restart of the host unloads the driver.
			if _, err := h.sudo(ctx, startLine, h.timing.Query); err != nil {
				return agent.ObservedUnknown, err
			}
			started = true
		}
		now, err := h.query(ctx, d.Path)
		if err != nil {
			return agent.ObservedUnknown, err
		}
		d.Flash = flashNeeded
		if now.Version == d.Expected {
			d.Flash = flashDone
		}
		r.t.Logger().Info("device read back", "op", "flash", "device", d.Path, "version", now.Version, "expected", d.Expected)
	}
	if len(r.pending()) > 0 {
		return agent.ObservedNotStarted, nil
	}
	return agent.ObservedDone, nil
}
