// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/flint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/telemetry"
)

// updateFlags are the flags of firmware update.
type updateFlags struct {
	direct     bool
	bmc        string
	nodeType   string
	components []string
	force      bool
	noActivate bool
	login      loginFlags
	// host is the operating system from which network devices are flashed.
	host      string
	hostLogin loginFlags
	ca        string
	tlsName   string
	state     string
	verbose   bool
	out       *output
	// node and rack choose what the server updates.
	node, rack string
	jobs       *jobFlags
}

func newUpdate(p *program) *cobra.Command {
	var f updateFlags
	cmd := &cobra.Command{
		Use:   "update FILE...",
		Short: "Update registered nodes from files of the server, or one device from here",
		Long: `Update registered nodes from files on the server's host (FILE is a path below its
firmware directory): one with --node, or all of a type with --rack and --type.
Several files are sent in the order given and activated once.

` + waitHelp + `With --direct, update the firmware of one device from here, without Rackbus in
between, by the same workflow that its agents run: checks, upload, the device's
own task, activation, comparison of versions. Nobody else is kept off the device
meanwhile: make sure that no job of Rackbus works on it.

The password comes from --password-file, the environment variable
` + envPassword + ` or a prompt, never from the command line. That of the
operating system, which is needed for network devices only, comes from
--host-password-file, ` + envHostPassword + ` or a prompt.

An interrupt (Ctrl-C) asks the update to stop at the next point at which the
device can be left; a second one cuts it, and what the device does then is
unknown. With --state an update that was cut, or whose terminal was lost, is taken
up again by the same command: it looks at the device first and sends nothing twice.

Exit codes of --direct: 0 the update is complete, or there was nothing to do; 1 it
failed or was stopped, the reason is on standard error; 2 usage, nothing was
begun; 3 the outcome is unknown: look at the device. Without --direct:
` + exitHelp,
		Example: `  rackctl firmware update nvfw_GB200-P4975_0004.fwpkg --node lab/tray-01
  rackctl firmware update bmc.fwpkg --rack lab --type compute_gb200_nvidia --name "November BMCs"
  rackctl firmware update --direct nvfw_GB200-P4975_0004.fwpkg \
      --bmc 10.0.0.7 --type compute_gb200_nvidia --user admin --state tray7.json
  rackctl firmware update --direct cx7.signed.reduced.bin --component CX7 \
      --bmc 10.0.0.7 --type compute_gb200_nvidia --host 10.0.1.7 --host-user admin
  rackctl firmware update --direct bmc.bin cpld.bin --component FW_BMC_0 --component FW_CPLD_0 \
      --bmc [fd00::7]:443 --type compute_gb200_nvidia --no-activate -o json`,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: files,
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.direct, "direct", false, "drive the device from here")
	flags.StringVar(&f.bmc, "bmc", "", "--direct: `HOST[:PORT]` of the device's management controller")
	flags.StringVar(&f.nodeType, "type", "", "`NODE_TYPE` of the device or the nodes, for example compute_gb200_nvidia")
	flags.StringArrayVar(&f.components, "component", nil, "`COMPONENT` or Redfish URI that a file is for, once for each file; without, the packages decide")
	flags.BoolVar(&f.force, "force", false, "send images that are installed already, or older")
	flags.BoolVar(&f.noActivate, "no-activate", false, "leave the new firmware inactive until the next power cycle")
	flags.StringVar(&f.ca, "ca", "", "verify the device's certificate against the CA certificates in `FILE`; off without, as most are self-signed")
	flags.StringVar(&f.tlsName, "tls-name", "", "`NAME` that the certificate has to be for, when it is not that of --bmc")
	flags.StringVar(&f.state, "state", "", "`FILE` that keeps how far the update is, so that it can be taken up again")
	flags.BoolVarP(&f.verbose, "verbose", "v", false, "log every step to standard error")
	flags.StringVar(&f.host, "host", "", "`HOST[:PORT]` of the tray's operating system, from which network devices (CX7, CX8, BF3_NIC) are flashed over SSH; its key is kept in ~/.ssh/known_hosts")
	f.login.add(cmd, "", envPassword, "the management controller")
	f.hostLogin.add(cmd, "host-", envHostPassword, "the operating system")
	flags.StringVar(&f.node, "node", "", "`[RACK/]NODE` that the server updates")
	flags.StringVar(&f.rack, "rack", "", "`RACK` whose nodes of --type the server updates")
	f.jobs = addJobFlags(cmd, true)
	f.out = addOutput(cmd, formText, formTable, formWide, formJSON, formYAML)
	complete(cmd, "type", typeIDs())
	register(cmd, "node", p.completeNodes)
	register(cmd, "rack", p.completeRacks)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.out.check(); err != nil {
			return err
		}
		if !f.direct {
			return f.runServed(cmd.Context(), p, cmd, args)
		}
		if f.out.form != formText && f.out.form != formJSON {
			return usagef("unknown form of output %q with --direct; there are %s, %s", f.out.form, formText, formJSON)
		}
		return f.run(cmd.Context(), p.env, cmd, args)
	}
	return cmd
}

// directTypes are the node types that can be driven from here.
func directTypes() []string {
	var out []string
	for _, t := range node.Types() {
		if _, known := redfish.LookupProfile(t.ID); known {
			out = append(out, t.ID)
		}
	}
	return out
}

// run begins nothing before all that can be wrong with the command line was
// looked at.
func (f *updateFlags) run(ctx context.Context, env *Env, cmd *cobra.Command, args []string) error {
	p, err := f.plan(ctx, args)
	if err != nil {
		return err
	}
	pool, err := f.pool()
	if err != nil {
		return err
	}
	login, err := f.login.read(env, cmd)
	if err != nil {
		return err
	}
	defer login.Password.Wipe()
	logins := map[node.EndpointKind]node.Credentials{node.EndpointBMC: login}
	if f.host != "" {
		host, err := f.hostLogin.read(env, cmd)
		if err != nil {
			return err
		}
		defer host.Password.Wipe()
		logins[node.EndpointHost] = host
	}
	progress := newProgress(env)
	logger := slog.New(slog.DiscardHandler)
	if f.verbose {
		logger = telemetry.NewLogger(telemetry.LogOptions{Output: progress})
	}
	opts, err := f.options(p, pool, logger)
	if err != nil {
		return err
	}
	if env.Devices != nil {
		env.Devices(&opts)
	}
	devices := redfishagent.New(opts)
	defer devices.Close()
	stop, ctx, release := stopOn(ctx, env, progress)
	defer release()
	end, err := agent.RunDirect(ctx, agent.DirectOptions{
		Command: p.command, Handler: devices.Handlers()[job.TypeFirmwareUpdate], Instance: "rackctl",
		Credentials: logins, StateFile: f.state, Cancel: stop, Events: progress.event, Logger: logger,
	})
	progress.done()
	return f.conclude(env, end, err)
}

// options are how the device is driven.
func (f *updateFlags) options(p *plan, pool *redfish.Pool, logger *slog.Logger) (redfishagent.Options, error) {
	cfg := config.Default()
	opts := redfishagent.FromConfig(cfg, p.family)
	opts.Pool, opts.FirmwareDir, opts.MaxUploads = pool, p.dir, 1
	if f.host == "" {
		return opts, nil
	}
	inBand, err := flint.FromConfig(cfg, logger)
	if err != nil {
		return opts, usagef("--host: %w", err)
	}
	opts.InBand, err = flint.New(inBand)
	return opts, err
}

// pool decides how certificates are judged.
func (f *updateFlags) pool() (*redfish.Pool, error) {
	opts := redfish.PoolOptions{}
	if f.ca == "" && f.tlsName != "" {
		return nil, usagef("--tls-name needs --ca: without it no certificate is verified")
	}
	if f.ca != "" {
		roots, err := readRoots(f.ca)
		if err != nil {
			return nil, err
		}
		opts.TLS.RootCAs = roots
	}
	return redfish.NewPool(opts), nil
}

// stopOn makes the first request to stop close stop, and the second one, or the
// loss of the terminal, end the context.
func stopOn(ctx context.Context, env *Env, p *progress) (stop chan struct{}, _ context.Context, release func()) {
	ctx, cut := context.WithCancel(ctx)
	arrived, unsubscribe := env.Signals()
	stop, quit, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for asked := false; ; asked = true {
			select {
			case <-quit:
				return
			case s := <-arrived:
				if !asked && s == os.Interrupt {
					p.note("stopping at the next point at which the device can be left; once more cuts at once")
					close(stop)
					continue
				}
				p.note("cut")
				cut()
				return
			}
		}
	}()
	return stop, ctx, func() {
		unsubscribe()
		close(quit)
		<-done
		cut()
	}
}

// conclude tells the outcome and turns it into the exit code.
func (f *updateFlags) conclude(env *Env, end job.Event, err error) error {
	switch {
	case errors.Is(err, agent.ErrInterrupted):
		return &exitError{ExitUnknown, fmt.Errorf("the update was interrupted and its outcome is open; the same command takes it up again from %s", f.state)}
	case err != nil && end.Kind != job.EventFinished:
		return &exitError{ExitUsage, err}
	case err != nil:
		fmt.Fprintf(env.Stderr, "rackctl: %v\n", err) // of the state file, after the end
	}
	result := resultOf(end)
	if f.out.form == formJSON {
		if err := f.out.write(env.Stdout, result); err != nil {
			return err
		}
	} else {
		result.text(env.Stdout)
	}
	if end.State == job.StateCompleted {
		return nil
	}
	reason := fmt.Errorf("the update is %s: %s", end.State, end.Description)
	if end.Failure != nil {
		reason = fmt.Errorf("the update is %s: %s (%s)", end.State, end.Failure.Message, end.Failure.FailureCode)
	}
	return &exitError{exitOf(end), reason}
}

// openEnds are failures after which the device may still take the change, or has.
var openEnds = []job.FailureCode{job.FailureOutcomeUnknown, job.FailureTaskLost, job.FailureTaskTimeout, job.FailurePanic}

// exitOf tells an update that failed from one of which nobody knows.
func exitOf(end job.Event) int {
	if end.State == job.StateTerminated || end.Failure != nil && slices.Contains(openEnds, end.Failure.FailureCode) {
		return ExitUnknown
	}
	return ExitFailed
}
