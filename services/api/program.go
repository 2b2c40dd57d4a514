// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/firmware/artifact"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/switchtls"
)

// role of the service on the bus, on which its rights there depend.
const role = "api"

// Program is the API as a process of its own.
func Program() process.Program {
	return process.Program{
		Name: "rackbus-api", Does: "serves the rack management API over gRPC",
		Process: config.ProcessAPI,
		Run:     process.OnBus(role, RunOn),
	}
}

// RunOn serves with a process's configuration on a connection of the caller until
// ctx ends. It serves at once, also while the bus is still coming up.
func RunOn(ctx context.Context, env *process.Env, conn *bus.Conn) error {
	opts, source, err := optionsFrom(env)
	if err != nil {
		return err
	}
	opts.Conn = conn
	s, err := New(opts)
	if err != nil {
		return err
	}
	background, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	if source != nil {
		wg.Go(func() { _ = source.Run(background) }) // it ends with its context, without an error
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wg.Go(func() {
		// The jobs service provisions the bus; whoever comes first waits for it.
		err := conn.Verify(background)
		if errors.Is(err, bus.ErrMisconfigured) || errors.Is(err, bus.ErrServerVersion) {
			cancel(err)
		}
	})
	if err := s.Run(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// optionsFrom returns what the configuration tells, and the TLS files to follow
// when there are any.
func optionsFrom(env *process.Env) (Options, *certs.Source, error) {
	cfg := env.Config
	keys, err := cfg.PublicKeys()
	if err != nil {
		return Options{}, nil, err
	}
	sealer, err := seal.NewSealer(keys)
	if err != nil {
		return Options{}, nil, err
	}
	if err := config.EnsureWritable(cfg.Workflows.FirmwareDir); err != nil {
		return Options{}, nil, fmt.Errorf("firmware directory: %w", err)
	}
	adm, err := admissionFrom(cfg)
	if err != nil {
		return Options{}, nil, err
	}
	if adm.Failpoints, err = failpoint.FromEnv(); err != nil {
		return Options{}, nil, fmt.Errorf("%s: %w", failpoint.EnvVar, err)
	}
	policy, err := artifact.PolicyFromConfig(cfg)
	if err != nil {
		return Options{}, nil, err
	}
	roles, err := cfg.AccessPolicy()
	if err != nil {
		return Options{}, nil, err
	}
	opts := Options{
		Access:         roles,
		ArtifactPolicy: &policy,
		Sealer:         sealer, Addr: cfg.GRPCAddr(), Plaintext: cfg.Plaintext(), FirmwareDir: cfg.Workflows.FirmwareDir,
		Profiles:      slices.Collect(maps.Keys(cfg.Workflows.ExpectedInventoryProfiles)),
		Validator:     len(cfg.Validation.Command) > 0,
		SwitchTargets: node.TargetPolicy{AllowLoopback: cfg.Switches.AllowLoopbackTargets},
		SwitchTLS:     switchtls.NewStore(cfg.SwitchTLS()),
		Admission:     adm, BatchParallelism: cfg.API.BatchParallelism, MaxRequestBytes: cfg.API.MaxRequestBytes,
		KeepaliveMinTime: cfg.API.KeepaliveMinTime, Reflection: cfg.API.Reflection, DrainTimeout: cfg.API.DrainTimeout,
		Timing:     timingFrom(cfg),
		Registerer: env.Registry, Tracer: env.Tracer, Readiness: env.Readiness, Logger: env.Log,
		LinkTTL: cfg.Diagnostics.LinkTTL,
	}
	if opts.LinkKey, err = linkKey(cfg, env.Log); err != nil {
		return Options{}, nil, err
	}
	if cfg.Console.Enabled {
		opts.HTTP = &HTTPOptions{Addr: cfg.ConsoleAddr(), URL: consoleURL(cfg), MaxConnections: cfg.Console.MaxConnections}
		opts.EvidenceBaseURL = consoleURL(cfg)
	}
	if opts.Plaintext {
		env.Log.Warn("serving without TLS: every request, with its credentials, travels in clear")
		return opts, nil, nil
	}
	source, err := certs.Load(certs.Files{Cert: cfg.TLS.Cert, Key: cfg.TLS.Key, CA: cfg.TLS.CA}, certs.Options{Logger: env.Log})
	if err != nil {
		return Options{}, nil, fmt.Errorf("gRPC listener: %w", err)
	}
	if opts.TLS, err = source.MutualServer(); err != nil {
		return Options{}, nil, fmt.Errorf("gRPC listener: %w", err)
	}
	if opts.HTTP != nil {
		if opts.HTTP.TLS, err = source.OptionalServer(); err != nil {
			return Options{}, nil, fmt.Errorf("HTTP listener: %w", err)
		}
	}
	return opts, source, nil
}

// consoleURL is where browsers reach the console, "" when only the listener knows.
func consoleURL(cfg *config.Config) string {
	if cfg.Console.Port == 0 && cfg.Console.BaseURL == "" {
		return ""
	}
	return cfg.ConsoleURL()
}

// pushSlack is what a file for a switch may take beyond its upload: the greeting, the
// login, and the look whether it arrived.
const pushSlack = 5 * time.Minute

func timingFrom(cfg *config.Config) Timing {
	return Timing{
		DeviceInfoLimitCompute: cfg.RedfishTiming().DeviceInfoLimitCompute,
		PushLimit:              cfg.SwitchTiming().UploadTimeout + pushSlack,
		AttestationLimit:       cfg.SwitchTiming().EvidenceTotal,
	}
}

func admissionFrom(cfg *config.Config) (admission.Options, error) {
	o := admission.Options{
		MaxTrackedJobs: cfg.Workflows.MaxTrackedJobs, Retention: cfg.TerminalJobTTL(),
		RolloutDeadline: cfg.Jobs.RolloutDeadline, QueueDeadline: cfg.Jobs.QueueDeadline, ParkedDeadline: cfg.Jobs.ParkedDeadline,
		MaxParked: cfg.Jobs.MaxParkedPerNode, AdmitTimeout: cfg.BusTiming().AdmitTimeout,
		RunLimits: make(map[job.Type]time.Duration), OnBusy: make(map[job.Type]admission.OnBusy),
	}
	for _, info := range job.Types() {
		o.RunLimits[info.Type] = cfg.RunDeadline(string(info.Type))
		policy, ok := admission.ParseOnBusy(cfg.OnBusy(string(info.Type)))
		if !ok {
			return o, fmt.Errorf("jobs.on_busy: unknown policy %q for %s", cfg.OnBusy(string(info.Type)), info.Type)
		}
		o.OnBusy[info.Type] = policy
	}
	return o, nil
}
