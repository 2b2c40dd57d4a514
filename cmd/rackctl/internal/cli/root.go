// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// program is one run of rackctl.
type program struct {
	env  *Env
	conn connFlags
}

// Main runs one command line and returns the exit code.
func Main(env Env, args []string) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	out := &wholeWriter{w: env.Stdout}
	env.Stdout = out
	root := newRoot(&env)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil {
		err = failed(fmt.Errorf("write the output: %w", out.err))
	}
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(env.Stderr, "rackctl: %s\n", lines(err.Error()))
	// Whatever no command has judged was refused before one began.
	code := ExitUsage
	var judged *exitError
	if errors.As(err, &judged) {
		code = judged.code
	}
	if judged == nil { // cobra counts arguments, and does not say what they are
		fmt.Fprintf(env.Stderr, "Usage: %s\n", cmd.UseLine())
	}
	if code == ExitUsage {
		fmt.Fprintf(env.Stderr, "See '%s --help'.\n", cmd.CommandPath())
	}
	return code
}

func newRoot(env *Env) *cobra.Command {
	p := &program{env: env}
	root := group("rackctl", "Look after NVLink racks from the command line",
		newRacks(p), newNodes(p), newPower(p), newFirmware(p), newSwitch(p), newReboot(p), newValidate(p),
		newJob(p), newDiag(p), newAudit(p), newWhoAmI(p), newContext(p), newBootstrap(env), newVersion(p))
	root.Long = `rackctl looks after NVLink racks from the command line.

Data goes to standard output, as a table or with -o json, yaml or wide; progress
and reasons go to standard error. Which server is asked is told by a context
(rackctl context --help), by the variables RACKCTL_ADDRESS, RACKCTL_CA,
RACKCTL_CERT, RACKCTL_KEY, or by flags, the later ones winning.

` + exitHelp
	root.Version = telemetry.Version()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	p.conn.add(root)
	register(root, "context", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return p.contextNames()
	})
	for _, flag := range []string{"address", "tls-server-name", "timeout"} {
		register(root, flag, cobra.NoFileCompletions)
	}
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	refuseUnknown(root)
	return root
}

// wholeWriter remembers that output was lost, which a command that prints tables and lines does not see.
type wholeWriter struct {
	w   io.Writer
	err error
}

func (w *wholeWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	if err != nil && w.err == nil {
		w.err = err
	}
	return n, err
}

// refuseUnknown makes the commands of cobra refuse what they do not know, where they would show help and call that
// success; and commands without arguments offer no file names.
func refuseUnknown(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = nil, runGroup
		case "help":
			show := cmd.Run
			cmd.Run = nil
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return unknownCommand(found, rest[0])
				}
				show(cmd, args)
				return nil
			}
		}
	}
	offerNoFiles(root)
}

func offerNoFiles(cmd *cobra.Command) {
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !cmd.HasSubCommands() {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, c := range cmd.Commands() {
		offerNoFiles(c)
	}
}

// group is a command that only holds others. An unknown one is an error, where
// cobra would show the help and call that success.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: runGroup, DisableFlagsInUseLine: true,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.AddCommand(commands...)
	return cmd
}

func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return cmd.Help()
}

// unknownCommand names those that may have been meant.
func unknownCommand(cmd *cobra.Command, name string) error {
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2 // that of cobra, which it sets later
	}
	hint := ""
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q for %q%s", name, cmd.CommandPath(), hint)
}
