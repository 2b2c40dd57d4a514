// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// Exit codes of every command.
const (
	// ExitOK: done, and all is well.
	ExitOK = 0
	// ExitFailed: it did not come about, or the file is damaged.
	ExitFailed = 1
	// ExitUsage: the command line makes no sense; nothing was begun.
	ExitUsage = 2
	// ExitUnknown: how it ended, or what a file is, cannot be known.
	ExitUnknown = 3
)

const exitHelp = `Exit codes: 0 done, 1 failed (the reason is on standard error), 2 usage,
3 the outcome is unknown.`

// exitError is an error with the exit code that goes with it.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func failed(err error) error { return &exitError{ExitFailed, err} }

func usagef(format string, args ...any) error {
	return &exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// Main runs one command line and returns the exit code.
func Main(env Env, args []string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	root := newRoot(&env)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(env.Stderr, "rackctl: %v\n", err)
	// Whatever no command has judged was refused before one began.
	code := ExitUsage
	var judged *exitError
	if errors.As(err, &judged) {
		code = judged.code
	}
	if code == ExitUsage {
		fmt.Fprintf(env.Stderr, "See '%s --help'.\n", cmd.CommandPath())
	}
	return code
}

func newRoot(env *Env) *cobra.Command {
	root := group("rackctl", "Look after NVLink racks from the command line", newFirmware(env))
	root.Long = "rackctl looks after NVLink racks from the command line.\n\n" + exitHelp
	root.Version = telemetry.Version()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	return root
}

// group is a command that only holds others. An unknown one is an error, where
// cobra would show the help and call that success.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q for %q", args[0], cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

func newFirmware(env *Env) *cobra.Command {
	return group("firmware", "Inspect firmware packages and update devices",
		newInspect(env), newExtract(env), newUpdate(env))
}
