// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Stat tells size and mode of a file on the host. A missing file gives an error
// that wraps fs.ErrNotExist.
func (c *Client) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	ctx, k := c.begin(ctx, "stat", c.opts.Timing.Exec)
	defer k.end()
	var info fs.FileInfo
	err := k.files(ctx, func(f *sftp.Client) (err error) {
		info, err = f.Stat(name)
		return err
	}, untouched)
	return info, err
}

// Remove removes a file on the host. A missing file is no error.
func (c *Client) Remove(ctx context.Context, name string) error {
	ctx, k := c.begin(ctx, "remove", c.opts.Timing.Exec)
	defer k.end()
	return k.files(ctx, func(f *sftp.Client) error { return absent(f.Remove(name)) }, untouched)
}

// untouched is true for operations that may be repeated.
func untouched() bool { return true }

func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// files runs an operation with an SFTP session of its own, so that one that is
// dead spoils nothing else. When the connection turns out to be dead before the
// operation has changed anything, it is run once more on a new one.
func (k *call) files(ctx context.Context, run func(*sftp.Client) error, untouched func() bool) error {
	for first := true; ; first = false {
		l, s, err := k.open(ctx)
		if err != nil {
			return err
		}
		err = k.wait(ctx, l, s, true, func() error { return k.subsystem(s, run) })
		k.close(l, s)
		if err == nil {
			return nil
		}
		if first && untouched() && l.dead() && ctx.Err() == nil {
			k.c.opts.Logger.Info("ssh connection lost, connecting again", "op", k.op, "addr", k.c.addr, "err", err)
			continue
		}
		return k.fileFailed(ctx, l, !untouched(), err)
	}
}

func (k *call) subsystem(s *ssh.Session, run func(*sftp.Client) error) error {
	in, err := s.StdinPipe()
	if err != nil {
		return err
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.RequestSubsystem("sftp"); err != nil {
		return &subsystemError{err}
	}
	// Without concurrent writes each chunk waits for the answer to the one before.
	f, err := sftp.NewClientPipe(out, in, sftp.UseConcurrentWrites(true), sftp.MaxConcurrentRequestsPerFile(uploadWindow))
	if err != nil {
		return &subsystemError{err}
	}
	// It waits for the host's farewell, which is not worth waiting for.
	defer k.c.spawn(func() { _ = f.Close() })
	return run(f)
}

// subsystemError says that there is no SFTP to be had.
type subsystemError struct{ err error }

func (e *subsystemError) Error() string { return "sftp not available: " + e.err.Error() }

func (e *subsystemError) Unwrap() error { return e.err }

// fileFailed is failed for operations on files.
func (k *call) fileFailed(ctx context.Context, l *link, sent bool, err error) error {
	var own *Error
	var subsystem *subsystemError
	switch {
	case errors.As(err, &own), errors.Is(err, ErrNotHeld):
		return err
	case errors.As(err, &subsystem), l.dead(), ctx.Err() != nil:
		return k.failed(ctx, l, sent, err)
	case errors.Is(err, sftp.ErrSSHFxConnectionLost), errors.Is(err, io.EOF):
		return k.fail(KindClosed, sent, err)
	default:
		return k.fail(KindFile, sent, err)
	}
}
