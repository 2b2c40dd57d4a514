// SPDX-License-Identifier: Apache-2.0

// Package upload puts files onto switches over SFTP. A file that is there already
// is not sent again, and one that was sent in part is gone on with; both are
// judged by size and SHA-256, since equal size is not equal content. A file gets
// its name only when all of it is there and its digest was compared.
package upload

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
)

// Limits of an upload.
type Limits struct {
	// Total bounds one try, Stall the time without progress in it.
	Total, Stall time.Duration
	// Window is how long a try that could not begin, or was cut off, is followed by
	// another, Pause apart. 0 is one try.
	Window, Pause time.Duration
}

// File is what is sent, and where to.
type File struct {
	Source ssh.Source
	// Dir is the folder on the switch, Name the file's name in it.
	Dir, Name string
	// MakeDir makes the folder when it is missing.
	MakeDir bool
	// Progress is told how many bytes are there; it may be nil.
	Progress func(sent, total int64)
}

// Path is the file's path on the switch.
func (f File) Path() string { return path.Join(f.Dir, f.Name) }

// Result is how an upload went.
type Result struct {
	ssh.Uploaded
	// Duration is how long it took, waiting for a slot not included.
	Duration time.Duration
}

// Rate is the average in bytes per second, 0 when nothing was sent.
func (r Result) Rate() float64 {
	if r.Sent == 0 || r.Duration <= 0 {
		return 0
	}
	return float64(r.Sent) / r.Duration.Seconds()
}

// ErrMissing says that the switch does not see a file that was sent.
var ErrMissing = errors.New("the switch does not see the file after its upload")

// Uploader bounds how many files are sent at a time.
type Uploader struct{ slots chan struct{} }

// New returns an Uploader.
func New(slots int) *Uploader { return &Uploader{slots: make(chan struct{}, max(slots, 1))} }

// Send puts a file onto a switch and makes sure that the switch sees it.
func (u *Uploader) Send(ctx context.Context, sw *device.Switch, f File, limits Limits) (Result, error) {
	if err := source.CheckName(f.Name); err != nil {
		return Result{}, err
	}
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
	start := time.Now()
	for attempt := 1; ; attempt++ {
		done, err := send(ctx, sw, f, limits)
		if err == nil || !again(err) || time.Since(start)+limits.Pause >= limits.Window {
			return Result{Uploaded: done, Duration: time.Since(start)}, err
		}
		sw.Log.Info("upload to be tried again", "op", "upload", "attempt", attempt, "err", err)
		if err := runbook.Sleep(ctx, limits.Pause); err != nil {
			return Result{}, err
		}
	}
}

func send(ctx context.Context, sw *device.Switch, f File, limits Limits) (ssh.Uploaded, error) {
	c, err := sw.SSH()
	if err != nil {
		return ssh.Uploaded{}, err
	}
	defer c.Close()
	if f.MakeDir {
		if _, err := c.Exec(ctx, ssh.Command{Line: "mkdir -p " + ssh.Quote(f.Dir)}); err != nil {
			return ssh.Uploaded{}, err
		}
	}
	done, err := c.Upload(ctx, ssh.Upload{
		Source: f.Source, Path: f.Path(), Resume: true, Verify: true, Limit: limits.Total, Stall: limits.Stall, Progress: f.Progress,
	})
	if err != nil {
		return done, err
	}
	return done, visible(ctx, c, f.Path())
}

// visible asks the shell, which is what installs will see.
func visible(ctx context.Context, c *ssh.Client, name string) error {
	out, err := c.Exec(ctx, ssh.Command{Line: "test -f " + ssh.Quote(name) + " && echo ok"})
	if err != nil {
		var exit *ssh.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("%w: %s: %w", ErrMissing, name, err)
		}
		return err
	}
	if !strings.Contains(string(out.Stdout), "ok") {
		return fmt.Errorf("%w: %s", ErrMissing, name)
	}
	return nil
}

// Remove takes a file from a switch again. A missing one is no error.
func Remove(ctx context.Context, sw *device.Switch, name string) error {
	c, err := sw.SSH()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Remove(ctx, name)
}

// again reports a failure that passes by itself: no connection, no session, a
// connection that broke. Refused commands, files and credentials do not.
func again(err error) bool {
	return ssh.IsKind(err, ssh.KindUnreachable, ssh.KindTimeout, ssh.KindClosed, ssh.KindRefused) && !errors.Is(err, ssh.ErrNotHeld)
}
