// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/rackbus/rackbus/pkg/redfishagent"
)

// Env is what commands get of their surroundings.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Redraw says that Stderr is a terminal, on which lines can be replaced.
	Redraw bool
	// Tables says that Stdout is a terminal: tables are fitted to its width.
	Tables bool
	// Colours says that a terminal may be sent colours.
	Colours bool
	// Size returns the columns and lines of the terminal; nil or zeros are 100 by 30.
	Size func() (columns, lines int)
	// Ask reads a secret without showing it; nil when nobody can be asked.
	Ask func(prompt string) ([]byte, error)
	// Confirm reads a line that is shown; nil when nobody can be asked.
	Confirm func(prompt string) (string, error)
	// Getenv reads the environment.
	Getenv func(string) string
	// Signals gives the requests to stop while it is subscribed.
	Signals func() (signals <-chan os.Signal, stop func())
	// Now is the time that ages and progress are told by; nil is time.Now.
	Now func() time.Time
	// Timing tunes waits.
	Timing Timing
	// Devices changes how devices are driven; nil leaves it. Tests have no time
	// for the waits of real hardware.
	Devices func(*redfishagent.Options)
}

// Timing tunes the waits of rackctl. Zero fields take the defaults.
type Timing struct {
	// Reconnect is the pause before a lost watch is taken up again, default 1 s. It
	// doubles up to ReconnectMax, default 15 s.
	Reconnect, ReconnectMax time.Duration
	// GiveUp ends a watch when the server could not be reached for that long,
	// default 10 min.
	GiveUp time.Duration
	// Poll is the pause between questions to a server that has no watch, default 2 s.
	Poll time.Duration
	// Redraw is the least time between two pictures of the progress, default 100 ms.
	Redraw time.Duration
	// Clock is how often the elapsed time is redrawn, default 1 s.
	Clock time.Duration
	// Completion bounds what the completion of a shell asks the server, default 2 s.
	Completion time.Duration
	// Evidence bounds the download of a bundle, default 10 min.
	Evidence time.Duration
}

func (t Timing) withDefaults() Timing {
	for field, standard := range map[*time.Duration]time.Duration{
		&t.Reconnect: time.Second, &t.ReconnectMax: 15 * time.Second, &t.GiveUp: 10 * time.Minute, &t.Poll: 2 * time.Second,
		&t.Redraw: 100 * time.Millisecond, &t.Clock: time.Second, &t.Completion: 2 * time.Second, &t.Evidence: 10 * time.Minute,
	} {
		if *field <= 0 {
			*field = standard
		}
	}
	return t
}

func (e *Env) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

// The size of a terminal that does not tell its own.
const (
	standardColumns = 100
	standardLines   = 30
)

func (e *Env) size() (columns, lines int) {
	if e.Size != nil {
		columns, lines = e.Size()
	}
	if columns <= 0 || lines <= 0 {
		return standardColumns, standardLines
	}
	return columns, lines
}

// errInterrupted says that somebody has typed Ctrl-C in place of an answer.
var errInterrupted = errors.New("interrupted")

// hidden reads a line that is not shown. When it is interrupted the terminal shows again what is typed.
func hidden(terminal int) ([]byte, error) {
	former, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(terminal)
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return l.text, l.err
	case <-signals: // the read goes on until the process ends, which is now
		return nil, errors.Join(errInterrupted, term.Restore(terminal, former))
	}
}

// Terminal is the surroundings of a process.
func Terminal() Env {
	env := Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Redraw:  term.IsTerminal(int(os.Stderr.Fd())),
		Tables:  term.IsTerminal(int(os.Stdout.Fd())),
		Colours: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		Signals: func() (<-chan os.Signal, func()) {
			c := make(chan os.Signal, 2)
			signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			return c, func() { signal.Stop(c) }
		},
		Size: func() (int, int) {
			columns, lines, err := term.GetSize(int(os.Stderr.Fd()))
			if err != nil {
				columns, lines, _ = term.GetSize(int(os.Stdout.Fd()))
			}
			return columns, lines
		},
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return env
	}
	env.Ask = func(prompt string) ([]byte, error) {
		if _, err := io.WriteString(os.Stderr, prompt); err != nil {
			return nil, err
		}
		answer, err := hidden(int(os.Stdin.Fd()))
		_, werr := io.WriteString(os.Stderr, "\n")
		if err != nil {
			return nil, err
		}
		return answer, werr
	}
	env.Confirm = func(prompt string) (string, error) {
		if _, err := io.WriteString(os.Stderr, prompt); err != nil {
			return "", err
		}
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return strings.TrimSpace(line), err
	}
	return env
}
