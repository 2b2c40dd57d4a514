// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/rackbus/rackbus/pkg/redfishagent"
)

// Env is what commands get of their surroundings.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Redraw says that Stderr is a terminal, on which a line can be replaced.
	Redraw bool
	// Ask reads a secret without showing it; nil when nobody can be asked.
	Ask func(prompt string) ([]byte, error)
	// Getenv reads the environment.
	Getenv func(string) string
	// Signals gives the requests to stop while it is subscribed.
	Signals func() (signals <-chan os.Signal, stop func())
	// Devices changes how devices are driven; nil leaves it. Tests have no time
	// for the waits of real hardware.
	Devices func(*redfishagent.Options)
}

// Terminal is the surroundings of a process.
func Terminal() Env {
	env := Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Redraw: term.IsTerminal(int(os.Stderr.Fd())),
		Signals: func() (<-chan os.Signal, func()) {
			c := make(chan os.Signal, 2)
			signal.Notify(c, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			return c, func() { signal.Stop(c) }
		},
	}
	if term.IsTerminal(int(os.Stdin.Fd())) {
		env.Ask = func(prompt string) ([]byte, error) {
			if _, err := io.WriteString(os.Stderr, prompt); err != nil {
				return nil, err
			}
			answer, err := term.ReadPassword(int(os.Stdin.Fd()))
			_, werr := io.WriteString(os.Stderr, "\n")
			if err != nil {
				return nil, err
			}
			return answer, werr
		}
	}
	return env
}
