// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
)

// role of the service on the bus, on which its rights there depend.
const role = "jobs"

// Program is the service as a process of its own.
func Program() process.Program {
	return process.Program{
		Name: "rackbus-jobs", Does: "turns events into job records, and ends and removes what nobody else does",
		Process: config.ProcessJobs,
		Run:     process.OnBus(role, RunOn),
	}
}

// RunOn runs a replica with a process's configuration on a connection of the
// caller until ctx ends.
func RunOn(ctx context.Context, env *process.Env, conn *bus.Conn) error {
	points, err := failpoint.FromEnv()
	if err != nil {
		return fmt.Errorf("%s: %w", failpoint.EnvVar, err)
	}
	opener, err := rackOpener(env)
	if err != nil {
		return err
	}
	artifacts, err := artifact.FromConfig(env.Config, env.Log)
	if err != nil {
		return fmt.Errorf("start jobs service: %w", err)
	}
	s, err := New(Options{
		Artifacts: artifacts, ArtifactsInStore: env.Config.Workflows.ArtifactStore == config.ArtifactStoreBus,
		Opener: opener, ColdReboot: coldRebootTiming(env.Config.ColdRebootTiming()),
		DrainTimeout: env.Config.Agent.DrainTimeout, ProgressInterval: env.Config.BusTiming().ProgressInterval,
		Diagnose: env.Config.Diagnostics.Automatic, Admission: admissionFrom(env.Config),
		Conn: conn, Instance: env.Instance, Retention: env.Config.TerminalJobTTL(),
		FirmwareDir:    env.Config.Workflows.FirmwareDir,
		CommitInterval: env.Config.BusTiming().FoldCommitInterval,
		QueueDeadline:  env.Config.Jobs.QueueDeadline,
		ParkedLife:     env.Config.Jobs.ParkedDeadline + commandMargin,
		Logger:         env.Log, Registerer: env.Registry, Tracer: env.Tracer, Failpoints: points,
	})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// rackOpener has the keys of the family "rack". An installation without them
// does everything but what needs a secret of a request here.
func rackOpener(env *process.Env) (*seal.Opener, error) {
	var seeds []secret.Value
	if dir := env.Config.KeyDir(); dir != "" {
		var err error
		seeds, err = seal.LoadSeeds(dir, node.FamilyRack)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("start jobs service: %w", err)
		}
	}
	if len(seeds) == 0 {
		env.Log.Warn("no key of the family rack: downloads with an access token will fail; run rackbus keys init", "family", string(node.FamilyRack))
	}
	opener, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	if err != nil {
		return nil, fmt.Errorf("start jobs service: %w", err)
	}
	return opener, nil
}

func coldRebootTiming(t config.ColdRebootTiming) ColdRebootTiming {
	return ColdRebootTiming{
		PrestageFloor: t.PrestageShutdownFloor, PrestagePollMax: t.PrestageShutdownPollMax,
		DischargeFloor: t.DischargeFloor, DischargePollMax: t.DischargePollMax,
		BMCUpFloor: t.BMCUpFloor, BMCUpPollMax: t.BMCUpPollMax,
		HelloBackoff: t.NVOSHelloBackoff, BootWait: t.ComputeBootWait, PollInterval: t.PollInterval,
		ActionLimit: t.ActionLimit, ProbeLimit: t.ProbeLimit, ActionSettle: t.ActionSettle,
	}
}
