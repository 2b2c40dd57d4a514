// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// probeLine succeeds once the host has booted. A host without systemd counts as
// ready when it takes the login.
const probeLine = `if command -v systemctl >/dev/null 2>&1; then state=$(systemctl is-system-running 2>/dev/null || true); ` +
	`case "$state" in running|degraded) exit 0 ;; *) printf 'system-state:%s\n' "$state"; exit 1 ;; esac; else true; fi`

const (
	toolsLine  = "command -v mst && command -v flint"
	startLine  = "mst start"
	statusLine = "mst status -v"
	makeDir    = "mktemp -d /tmp/nvfwupd-flint.XXXXXX"
	// runningLine succeeds while a flint writes a device of the host: only those
	// command lines end in the command b.
	runningLine = `pgrep -f 'flint .* b$'`
	// alreadyWritten is what flint says of a device that has the image, written but
	// not in force; it counts as success.
	alreadyWritten = "the firmware image was already updated on flash, pending reset"
)

// workDir is the form of the directories that are made, and removed again.
var workDir = regexp.MustCompile(`^/tmp/nvfwupd-flint\.[A-Za-z0-9]{6,}$`)

// host runs commands on the host operating system of a tray.
type host struct {
	c        *ssh.Client
	password secret.Value
	timing   *Timing
}

// connect returns the host of a task. Nothing is sent yet.
func (f *Flint) connect(t *agent.Task) (*host, error) {
	login, err := t.Credentials(node.EndpointHost)
	if err != nil {
		return nil, err
	}
	at := t.Target().GetHost()
	c, err := ssh.New(
		ssh.Endpoint{Address: at.GetAddress(), Port: uint16(at.GetPort()), Names: []string{at.GetHostName()}},
		ssh.Login{User: login.User, Password: login.Password},
		ssh.Options{
			HostKeys: f.opts.HostKeys, Guard: t.Guard(), Legacy: f.opts.Legacy, Timing: f.opts.Timing.SSH,
			Dial: f.opts.Dial, Logger: t.Logger(),
		})
	if err != nil {
		return nil, err
	}
	return &host{c: c, password: login.Password, timing: &f.opts.Timing}, nil
}

func (h *host) close() {
	h.c.Close()
	h.password.Wipe()
}

// plain runs a command as the user of the login.
func (h *host) plain(ctx context.Context, line string, limit time.Duration) (string, error) {
	out, err := h.c.Exec(ctx, ssh.Command{Line: line, Limit: limit})
	return string(out.Stdout), err
}

// sudo runs a command as root. The password goes through the standard input; what
// sudo prints, its prompt included, is dropped with the standard error.
func (h *host) sudo(ctx context.Context, line string, limit time.Duration) (string, error) {
	in := append(bytes.Clone(h.password.Bytes()), '\n')
	out, err := h.c.Exec(ctx, ssh.Command{
		Line: "sudo -S " + line + " 2>/dev/null", Label: line, Stdin: bytes.NewReader(in), Limit: limit,
	})
	return string(out.Stdout), err
}

// probe looks whether the host has booted.
func (h *host) probe(ctx context.Context) error {
	out, err := h.plain(ctx, probeLine, h.timing.Probe)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		_, state, _ := strings.Cut(strings.TrimSpace(out), "system-state:")
		return &stateError{state}
	}
	return err
}

// stateError tells the state of a host that has not booted yet.
type stateError struct{ state string }

func (e *stateError) Error() string { return "the system state is " + fmt.Sprintf("%q", e.state) }

// waitReady probes until the host has booted. A refused login fails at once: it
// will not get better, and accounts may be locked for it.
func (h *host) waitReady(ctx context.Context, t *agent.Task, progress func(string)) error {
	end := time.Now().Add(h.timing.ReadyLimit)
	for attempt := 1; ; attempt++ {
		err := h.probe(ctx)
		var state *stateError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &state) && !transient(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		progress(fmt.Sprintf("Waiting for the host operating system (attempt %d of %d: %v)", attempt, h.timing.ReadyAttempts, err))
		if attempt >= h.timing.ReadyAttempts || time.Now().Add(h.timing.ReadyInterval).After(end) {
			return &notReadyError{err}
		}
		if err := t.Sleep(ctx, h.timing.ReadyInterval); err != nil {
			return err
		}
	}
}

// devices finds the network devices and reads their firmware.
func (h *host) devices(ctx context.Context) ([]Device, error) {
	if _, err := h.sudo(ctx, startLine, h.timing.Query); err != nil {
		return nil, fmt.Errorf("start the mst driver: %w", err)
	}
	text, err := h.sudo(ctx, statusLine, h.timing.Query)
	if err != nil {
		return nil, fmt.Errorf("list the devices: %w", err)
	}
	return ParseDevices(text)
}

func (h *host) query(ctx context.Context, path string) (Firmware, error) {
	text, err := h.sudo(ctx, "flint -d "+ssh.Quote(path)+" --yes query", h.timing.Query)
	if err != nil {
		return Firmware{}, &deviceError{path, err}
	}
	f, err := ParseQuery(text)
	if err != nil {
		return f, &deviceError{path, err}
	}
	return f, nil
}

func (h *host) queryImage(ctx context.Context, path string) (Firmware, error) {
	text, err := h.sudo(ctx, "flint -i "+ssh.Quote(path)+" query", h.timing.Query)
	if err != nil {
		return Firmware{}, err
	}
	return ParseQuery(text)
}

// flash writes an image to a device.
func (h *host) flash(ctx context.Context, device, image string) error {
	text, err := h.sudo(ctx, "flint -d "+ssh.Quote(device)+" --yes -i "+ssh.Quote(image)+" b", h.timing.Flash)
	var exit *ssh.ExitError
	if errors.As(err, &exit) && strings.Contains(strings.ToLower(text), alreadyWritten) {
		return nil
	}
	return err
}

// idle waits until no flint writes a device: one that an earlier owner, or a job
// that was terminated, has started outlives its connection.
func (h *host) idle(ctx context.Context, t *agent.Task) error {
	end := time.Now().Add(h.timing.Flash)
	for {
		_, err := h.plain(ctx, runningLine, h.timing.Query)
		var exit *ssh.ExitError
		switch {
		case errors.As(err, &exit):
			// None runs; or the host cannot tell, and flint's own lock has to do.
			return nil
		case err != nil:
			return err
		case time.Now().After(end):
			return errors.New("a flash that was begun earlier does not end")
		}
		t.Progress(0, "Waiting for a flash that was begun earlier")
		if err := t.Sleep(ctx, h.timing.FlashPoll); err != nil {
			return err
		}
	}
}

// makeDir makes the work directory.
func (h *host) makeDir(ctx context.Context) (string, error) {
	out, err := h.plain(ctx, makeDir, h.timing.Query)
	if err != nil {
		return "", err
	}
	dir := strings.TrimSpace(out)
	if !workDir.MatchString(dir) {
		return "", fmt.Errorf("%w: mktemp made %q", ErrUnreadable, dir)
	}
	return dir, nil
}

// removeDir removes a work directory, and nothing else.
func (h *host) removeDir(ctx context.Context, dir string) error {
	if !workDir.MatchString(dir) {
		return nil
	}
	_, err := h.plain(ctx, "rm -rf -- "+ssh.Quote(dir), h.timing.Query)
	return err
}
