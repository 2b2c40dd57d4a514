// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"cmp"
	"context"
	"io"
	"time"

	"golang.org/x/crypto/ssh"
)

// Terminal describes the pseudo terminal of an interactive shell.
type Terminal struct {
	// Term is the terminal's type; default "xterm".
	Term string
	// Rows and Columns; default 24 and 80.
	Rows, Columns int
	// Limit bounds the whole dialogue; by default Timing.Exec.
	Limit time.Duration
}

// Interact starts the user's shell on a pseudo terminal and hands it to dialogue:
// reads give what the host writes, and end with io.EOF when the shell does. The
// shell is closed when dialogue returns. When the context or the limit ends, reads
// and writes fail. The error is that of dialogue, or an Error.
func (c *Client) Interact(ctx context.Context, t Terminal, dialogue func(io.ReadWriter) error) error {
	ctx, k := c.begin(ctx, "shell", cmp.Or(t.Limit, c.opts.Timing.Exec))
	defer k.end()
	l, s, err := k.open(ctx)
	if err != nil {
		return err
	}
	defer k.close(l, s)
	in, err := s.StdinPipe()
	if err != nil {
		return k.failed(ctx, l, false, err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		return k.failed(ctx, l, false, err)
	}
	var told error
	err = k.wait(ctx, l, s, true, func() error {
		// With a terminal the host mixes both outputs. Echo stays on: the host's
		// programs switch it off where they ask for passwords.
		if err := s.RequestPty(cmp.Or(t.Term, "xterm"), cmp.Or(t.Rows, 24), cmp.Or(t.Columns, 80), ssh.TerminalModes{}); err != nil {
			return err
		}
		if err := s.Shell(); err != nil {
			return err
		}
		told = dialogue(&guardedTerminal{Reader: out, in: in, guard: c.opts.Guard})
		return nil
	})
	if err != nil {
		return k.failed(ctx, l, true, err)
	}
	return told
}

// guardedTerminal asks the guard before every write.
type guardedTerminal struct {
	io.Reader
	in    io.Writer
	guard Guard
}

func (t *guardedTerminal) Write(p []byte) (int, error) {
	if err := check(t.guard); err != nil {
		return 0, err
	}
	return t.in.Write(p)
}
