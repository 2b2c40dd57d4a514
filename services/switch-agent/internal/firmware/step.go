// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
	"github.com/rackbus/rackbus/services/switch-agent/internal/upload"
)

// stepRun is the work on one step.
type stepRun struct {
	u *update
	step
	// i is its place among all n.
	i, n int
	file *rackbusv1.FirmwareUpdateTarget
}

func (u *update) step(i int) *stepRun {
	s := u.work.steps[i]
	return &stepRun{u: u, step: s, i: i, n: len(u.work.steps), file: u.cmd.GetTargets()[s.index]}
}

func (s *stepRun) state() *stepState { return &s.u.state.Steps[s.i] }

// named numbers a stage when there are several steps.
func (s *stepRun) named(stage string) string {
	if s.n == 1 {
		return stage
	}
	return fmt.Sprintf("%s_%d", stage, s.i+1)
}

func (s *stepRun) stages() []agent.Stage {
	t := &s.u.u.opts.Timing
	of := fmt.Sprintf("target %d/%d: %s", s.i+1, s.n, s.target)
	return []agent.Stage{
		{
			Name: s.named("upload"), Description: "Uploading " + of,
			Resume: agent.Repeatable, Interruptible: true, Run: s.working(s.upload),
		},
		{
			Name: s.named("install"), Description: "Installing " + of,
			Resume: agent.Once, Prepare: s.working(s.prepare), Run: s.working(s.install), Observe: s.observe,
			Limit: t.Install,
		},
		{
			Name: s.named("monitor"), Description: "Running firmware workflow for target " + s.target,
			Resume: agent.Resumable, Run: s.working(s.monitor), Limit: t.InstallLimit,
		},
	}
}

// working notes which component a stage is about, and skips it when nothing is
// left to do for it.
func (s *stepRun) working(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		s.u.current = &s.step
		switch st := s.state(); {
		case st.Skipped != "":
			return agent.Skip(st.Skipped)
		case st.Failed != "":
			return agent.Skip("the installation of the component failed")
		case st.Done:
			return agent.Skip("installed already")
		}
		return run(ctx)
	}
}

// upload sends the file in the form in which the switch takes it. What cannot be
// sent ends the update.
func (s *stepRun) upload(ctx context.Context) error {
	f, err := s.u.open(ctx, s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	content, name, err := s.content(ctx, f)
	if err != nil {
		return fail(phaseUpdate, s.target, err)
	}
	defer content.Close()
	dir, limits := folder(s.target), s.u.u.opts.Limits.Component
	if s.image() {
		dir, limits = imagesDir, s.u.u.opts.Limits.Image
	}
	done, err := s.u.u.opts.Uploads.Send(ctx, s.u.sw, upload.File{
		Source: content, Dir: dir, Name: name, MakeDir: true,
		Progress: func(sent, total int64) {
			s.u.t.Progress(int(100*sent/max(total, 1)), "Uploading "+s.target)
		},
	}, limits)
	if err != nil {
		return fail(phaseUpdate, s.target, err)
	}
	s.u.t.Logger().Info("firmware file on the switch", "op", s.named("upload"), "target", s.target,
		"unchanged", done.Unchanged, "sent", done.Sent, "resumed", done.Resumed)
	st := s.state()
	st.Name, st.Uploaded = name, true
	if s.image() {
		if err := s.checkListed(ctx); err != nil {
			return fail(phaseUpdate, s.target, err)
		}
	}
	return s.u.save()
}

// content is what is sent for a target, and its name on the switch. A CPLD takes
// its programming file, and components without a package of their own their single
// image; all others take the package.
func (s *stepRun) content(ctx context.Context, f *source.File) (content, string, error) {
	name := f.Base
	format, err := firmware.FormatOf(f)
	if err != nil {
		return nil, "", err
	}
	packaged := format == firmware.FormatPLDM
	switch s.target {
	case "CPLD1":
		if !packaged {
			if stem, ok := strings.CutSuffix(name, ".bin"); ok {
				name = stem + ".vme"
			}
			return plainContent{f}, name, nil
		}
		return unpack(func(w io.Writer) (string, error) {
			vme, err := firmware.ExtractVME(ctx, f, f.Size(), w)
			return vme.FileName, err
		})
	case "BMC", "EROT", "FPGA", "BIOS", "SMA", ImageRow:
		return plainContent{f}, name, nil
	}
	if !packaged {
		return plainContent{f}, name, nil
	}
	return unpack(func(w io.Writer) (string, error) {
		images, err := firmware.Images(f, f.Size())
		if err != nil {
			return "", err
		}
		if len(images) != 1 {
			return "", fmt.Errorf("the package has %d images; %s takes a single one", len(images), s.target)
		}
		return strings.TrimSuffix(name, ".fwpkg") + ".bin", images[0].WriteTo(ctx, w, f)
	})
}

// content is a file or a part of one.
type content interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// plainContent is a file as it is, which its opener closes.
type plainContent struct{ *source.File }

func (plainContent) Close() error { return nil }

// unpacked is an image from a package, in a temporary file that has no name any
// more.
type unpacked struct {
	*os.File
	size int64
}

func (u unpacked) Size() int64 { return u.size }

func unpack(write func(io.Writer) (name string, err error)) (content, string, error) {
	f, err := os.CreateTemp("", "rackbus-switch-*")
	if err != nil {
		return nil, "", fmt.Errorf("unpack the firmware: %w", err)
	}
	name, err := write(f)
	info, serr := f.Stat()
	if err = errors.Join(err, serr, os.Remove(f.Name())); err != nil {
		return nil, "", errors.Join(fmt.Errorf("unpack the firmware: %w", err), f.Close())
	}
	return unpacked{f, info.Size()}, name, nil
}

// checkListed makes sure that the switch has taken an image into its list. One
// that it does not list is removed again.
func (s *stepRun) checkListed(ctx context.Context) error {
	c, err := s.u.client(ctx, s.u.u.opts.Timing.Inventory)
	if err != nil {
		return err
	}
	listing, err := c.ImageFiles(ctx)
	if err == nil && !nvue.ListsFile(listing, s.state().Name) {
		err = fmt.Errorf("the switch does not list the image %s", s.state().Name)
	}
	if err != nil {
		s.removeImage(ctx)
	}
	return err
}

// removeImage takes an image that was of no use from the switch again.
func (s *stepRun) removeImage(ctx context.Context) {
	name := upload.File{Dir: imagesDir, Name: s.state().Name}.Path()
	if err := upload.Remove(ctx, s.u.sw, name); err != nil {
		s.u.t.Logger().Warn("image not removed", "op", s.named("install"), "err", err)
	}
}

// show reads the component as the switch shows it.
func (s *stepRun) show(ctx context.Context) ([]byte, error) {
	c, err := s.u.client(ctx, s.u.u.opts.Timing.RebootProbe)
	if err != nil {
		return nil, err
	}
	if s.image() {
		return c.Get(ctx, "/nvue_v1/system/image")
	}
	return c.FirmwareComponent(ctx, s.target)
}

// prepare notes the component before the installation.
func (s *stepRun) prepare(ctx context.Context) error {
	var before []byte
	err := s.u.patiently(ctx, func(ctx context.Context) (err error) {
		before, err = s.show(ctx)
		return err
	})
	if err != nil {
		return fail(phaseUpdate, s.target, err)
	}
	st := s.state()
	st.Before, st.Started, st.InstallID = before, false, ""
	return s.u.save()
}

// install begins the installation. One that the switch refuses is noted, and the
// update goes on with the other components.
func (s *stepRun) install(ctx context.Context) error {
	c, err := s.u.client(ctx, s.u.u.opts.Timing.Install)
	if err != nil {
		return fail(phaseUpdate, s.target, err)
	}
	st := s.state()
	action := nvue.InstallFirmware(s.target, st.Name)
	if s.image() {
		action = nvue.InstallImageOnly(st.Name)
	}
	id, err := c.StartAction(ctx, action)
	if err != nil {
		if err = device.Uncertain(err); device.Passes(err) {
			return err
		}
		return s.failed(ctx, phaseUpdate, err)
	}
	s.u.t.InFlight("action " + string(id))
	if err := s.u.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	st.Started, st.InstallID = true, id
	return s.u.save()
}

// failed notes why a component has not got its firmware.
func (s *stepRun) failed(ctx context.Context, phase string, err error) error {
	told := fail(phase, s.target, err)
	if ctx.Err() != nil || device.Passes(err) && !errors.As(err, new(*agent.FailureError)) {
		return told
	}
	var f *agent.FailureError
	errors.As(told, &f)
	st := s.state()
	st.Failed, st.Code = f.Failure.Message, f.Failure.FailureCode
	s.u.t.Logger().Warn("component not updated, going on with the others", "op", s.named("install"), "target", s.target, "err", err)
	if s.image() {
		s.removeImage(ctx)
	}
	return s.u.save()
}

// imageVersion is the build in the name of an image, with its suffix.
var imageVersion = regexp.MustCompile(`\d+\.\d+\.\d+(?:-\d+)?`)

// imageBuild is the build id that the name of an image file promises.
func imageBuild(file string) string {
	version := imageVersion.FindString(file)
	if version == "" {
		return ""
	}
	return "nvos-" + version
}

// stepFailure is the failure of a component as the record tells it.
func (u *update) stepFailure(i int) error {
	st := &u.state.Steps[i]
	f := agent.Fail(st.Code, phasePoll, st.Failed, nil)
	if f.Failure.Code != job.CodeFailedPrecondition {
		f.Failure.Code = job.CodeOther
	}
	return f
}
