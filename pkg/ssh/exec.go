// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// DefaultMaxOutput is how much of each output stream of a command is kept.
const DefaultMaxOutput = 1 << 20

// Command is a command line for the shell of the host.
type Command struct {
	// Line is what the host's shell gets; see Quote for its arguments. It must hold
	// no secrets: other users of the host can read it.
	Line string
	// Label names the command in errors; by default its line, cut to 160 bytes.
	Label string
	// Stdin is the command's standard input, which is where secrets belong. Reading
	// from it must not block.
	Stdin io.Reader
	// Limit bounds the whole call; by default Timing.Exec.
	Limit time.Duration
	// MaxOutput bounds what is kept of each output stream, in bytes; what comes
	// after is dropped. By default DefaultMaxOutput.
	MaxOutput int
}

const maxLabel = 160

func (c Command) label() string {
	if c.Label != "" {
		return c.Label
	}
	if len(c.Line) > maxLabel {
		return c.Line[:maxLabel-3] + "..."
	}
	return c.Line
}

// Output is what a command has written.
type Output struct {
	Stdout, Stderr []byte
	// Truncated says that something was dropped.
	Truncated bool
}

// Exec runs a command and waits for its end. A command that ran and failed gives
// an ExitError, with its output; everything else an Error. When an Error says
// Sent, the command may still run on the host.
func (c *Client) Exec(ctx context.Context, cmd Command) (Output, error) {
	ctx, k := c.begin(ctx, "exec", cmp.Or(cmd.Limit, c.opts.Timing.Exec))
	defer k.end()
	l, s, err := k.open(ctx)
	if err != nil {
		return Output{}, err
	}
	defer k.close(l, s)
	limit := cmp.Or(cmd.MaxOutput, DefaultMaxOutput)
	stdout, stderr := &bounded{max: limit}, &bounded{max: limit}
	s.Stdout, s.Stderr = stdout, stderr
	in, err := s.StdinPipe()
	if err != nil {
		return Output{}, k.failed(ctx, l, false, err)
	}
	if err := check(c.opts.Guard); err != nil {
		return Output{}, err
	}
	var started atomic.Bool
	err = k.wait(ctx, l, s, false, func() error {
		if err := s.Start(cmd.Line); err != nil {
			return err
		}
		started.Store(true)
		// A command that ends without reading its input is none the worse for it.
		c.spawn(func() {
			if cmd.Stdin != nil {
				_, _ = io.Copy(in, cmd.Stdin)
			}
			_ = in.Close()
		})
		return s.Wait()
	})
	return c.executed(ctx, k, l, cmd, started.Load(), stdout, stderr, err)
}

// executed tells how a command has ended.
func (c *Client) executed(ctx context.Context, k *call, l *link, cmd Command, started bool, stdout, stderr *bounded, err error,
) (Output, error) {
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	switch {
	case err == nil, errors.As(err, &exit):
	case errors.As(err, &missing) && !l.dead() && ctx.Err() == nil:
		return Output{}, k.fail(KindProtocol, true, errors.New("the command ended without an exit status"))
	default:
		// One that the host did not start, it told so.
		return Output{}, k.failed(ctx, l, started || l.dead(), err)
	}
	out := Output{Stdout: stdout.data, Stderr: stderr.data, Truncated: stdout.dropped || stderr.dropped}
	if exit == nil {
		return out, nil
	}
	e := &ExitError{Command: cmd.label(), Status: exit.ExitStatus(), Signal: exit.Signal(), Output: oneLine(string(out.Stderr))}
	if e.Signal != "" {
		e.Status = -1
	}
	if e.Output == "" {
		e.Output = oneLine(string(out.Stdout))
	}
	return out, e
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	max     int
	data    []byte
	dropped bool
}

func (b *bounded) Write(p []byte) (int, error) {
	keep := p[:min(len(p), b.max-len(b.data))]
	b.data = append(b.data, keep...)
	b.dropped = b.dropped || len(keep) < len(p)
	return len(p), nil
}
