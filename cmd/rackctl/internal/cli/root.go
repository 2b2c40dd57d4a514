// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

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
	root := newRoot(&env)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
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
