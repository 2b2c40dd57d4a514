// SPDX-License-Identifier: Apache-2.0

// Package certificate installs certificates on a switch and makes its services
// demand client certificates.
//
// The material comes with the command, the same for every switch of a batch. It is
// copied to the switch, imported, and bound to the services, NVUE last: binding it
// cuts the very connection that asks for it. The private key is on the switch's
// disk only until it is imported.
//
// A switch that has no certificate yet cannot be verified. Only this job may talk to
// such a switch, and only when its certificate, and nothing else, is what is wrong
// with the connection; that is logged.
package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/mtls"
)

// remoteRoot has one directory per installation.
const remoteRoot = "/home/admin/certs"

// Timing holds the waits and limits. A zero field takes its default.
type Timing struct {
	// Upload bounds the copy of one file. 30 min.
	Upload time.Duration
	// HelloTries is how often a service is greeted after its certificate was bound,
	// HelloPause the pause between two tries. 5, 6 s.
	HelloTries int
	HelloPause time.Duration
	// VerifyTries is how often the bindings are read until they are as wanted,
	// VerifyPause the pause between two reads. 3, 5 s.
	VerifyTries int
	VerifyPause time.Duration
	// Cleanup bounds the removal of the staged files after a failure. 30 s.
	Cleanup time.Duration
	// UnsetPause is the pause between two command lines of an unset. 300 ms.
	UnsetPause time.Duration
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Upload, 30 * time.Minute},
		{&t.HelloPause, 6 * time.Second},
		{&t.VerifyPause, 5 * time.Second},
		{&t.Cleanup, 30 * time.Second},
		{&t.UnsetPause, mtls.DefaultPause},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{{&t.HelloTries, 5}, {&t.VerifyTries, 3}} {
		if *n.field <= 0 {
			*n.field = n.value
		}
	}
	return t
}

// Cluster are the steps of the scale-up fabric that an installation needs.
type Cluster interface {
	// Bind gives an app its certificates and lets it demand those of clients. What is
	// bound already stays.
	Bind(ctx context.Context, app, certificate, ca string) error
	// SetState switches the cluster on or off, SetGRPC the port of an app.
	SetState(ctx context.Context, on bool) (changed bool, err error)
	SetGRPC(ctx context.Context, app string, on bool) (changed bool, err error)
	// AwaitReady waits until an app serves.
	AwaitReady(ctx context.Context, app string) error
}

// Services greets the services of a switch with our own certificate. An error of a
// connection that never came up wraps a *channel.Error.
type Services interface {
	Controller(ctx context.Context, sw *device.Switch, own *switchtls.Material) error
	Telemetry(ctx context.Context, sw *device.Switch, own *switchtls.Material) error
}

// Options configure the job.
type Options struct {
	Switches *device.Opener
	Timing   Timing
	// Cluster gives the fabric steps of a switch whose NVUE connection is up.
	Cluster func(*device.Switch) Cluster
	// Services defaults to Greeter{}.
	Services Services
	// Secrets reads the material; default is (*agent.Task).Secrets.
	Secrets security.Secrets
}

// Install returns the handler of jobs of the type switch_certificate.
func Install(o Options) agent.Handler {
	o.Timing = o.Timing.withDefaults()
	if o.Secrets == nil {
		o.Secrets = (*agent.Task).Secrets
	}
	if o.Services == nil {
		o.Services = Greeter{}
	}
	return func(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
		cmd := t.Command().GetSwitchCertificate()
		services, err := security.ParseServices(cmd.GetServices())
		if err != nil {
			return agent.Outcome{}, agent.Fail(job.FailureInvalidArgument, phasePrepare, err.Error(), err)
		}
		if cmd.GetUnset() || o.Switches.TLS().Insecure() {
			unset := mtls.Options{Switches: o.Switches, Pause: o.Timing.UnsetPause}
			return mtls.Run(ctx, t, unset, services, mtls.ModeInsecure)
		}
		w, err := open(o, t, cmd, services)
		if err != nil {
			return agent.Outcome{}, err
		}
		defer w.sw.Close()
		return w.run(ctx)
	}
}

// phasePrepare is what comes before the first stage.
const phasePrepare = "prepare"

// state is what the next owner of the job has to know. It holds no secret.
type state struct {
	// Own is the fingerprint of our own material when the job began.
	Own string `json:"own,omitempty"`
	// Weakened says that the switch could not be verified when the job began.
	Weakened bool `json:"weakened,omitempty"`
	// KeyStaged says that the private key may lie on the switch's disk, Directory
	// that something does.
	KeyStaged bool `json:"key_staged,omitempty"`
	Directory bool `json:"directory,omitempty"`
	// Revisions are the changes of the configuration, by stage.
	Revisions map[string]nvue.Revision `json:"revisions,omitempty"`
	Bound     []security.Service       `json:"bound,omitempty"`
	Skipped   []security.Service       `json:"skipped,omitempty"`
	// Verification is what the switch showed of the bindings.
	Verification *verification `json:"verification,omitempty"`
	// Greeted are the tests that went well, by the key of the result.
	Greeted map[string]string `json:"greeted,omitempty"`
	Details security.Details  `json:"details,omitempty"`
}

// work is one run of the job.
type work struct {
	t        *agent.Task
	sw       *device.Switch
	opts     Options
	timing   Timing
	cmd      *rackbusv1.SwitchCertificate
	services []security.Service
	material *switchtls.Material
	state    state
	names    []job.StageName
}

func open(o Options, t *agent.Task, cmd *rackbusv1.SwitchCertificate, services []security.Service) (*work, error) {
	refuse := func(err error) error {
		return agent.Fail(job.FailureInvalidArgument, phasePrepare, err.Error(), err)
	}
	for name, id := range map[string]string{
		"run": cmd.GetRunId(), "certificate": cmd.GetEntityCertificateId(), "CA": cmd.GetCaCertificateId(),
	} {
		if !plainName(id) {
			return nil, refuse(fmt.Errorf("the %s id %q is not made of letters, digits, dashes and underscores", name, id))
		}
	}
	var secrets rackbusv1.SwitchCertificateSecrets
	if err := o.Secrets(t, &secrets); err != nil {
		return nil, err
	}
	material, err := switchtls.Parse(cmd.GetDomain(), secrets.GetCa(), secrets.GetCertificate(), secret.FromBytes(secrets.GetKey()))
	if err != nil {
		return nil, agent.Fail(job.FailureCertificateMaterial, phasePrepare, "material to be installed: "+err.Error(), err)
	}
	w := &work{t: t, opts: o, timing: o.Timing, cmd: cmd, services: nvueLast(services), material: material}
	if _, err := t.Load(&w.state); err != nil {
		return nil, err
	}
	if w.sw, err = o.Switches.Open(t, cmd.GetDomain(), t.Logger()); err != nil {
		return nil, security.Failure(phasePrepare, "", err)
	}
	if !w.sw.HasHost() {
		return nil, refuse(errors.New("the node has no host endpoint"))
	}
	w.sw.NVUE.Hide(keyLines(material.Key)...)
	return w, nil
}

// keyLines are the lines of a private key: whoever complains about a key may quote
// one of them.
func keyLines(key secret.Value) []secret.Value {
	lines := []secret.Value{key}
	for line := range bytes.Lines(key.Bytes()) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && !bytes.HasPrefix(line, []byte("-----")) {
			lines = append(lines, secret.FromBytes(bytes.Clone(line)))
		}
	}
	return lines
}

// plainName reports whether a name can stand in paths and command lines as it is.
func plainName(name string) bool {
	for _, r := range name {
		if !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return false
		}
	}
	return name != ""
}

// nvueLast keeps the order of a request, but for the service whose binding cuts our
// own connection.
func nvueLast(services []security.Service) []security.Service {
	out := slices.Clone(services)
	slices.SortStableFunc(out, func(a, b security.Service) int {
		return rank(a) - rank(b)
	})
	return out
}

func rank(s security.Service) int {
	if s == security.ServiceNVUE {
		return 1
	}
	return 0
}

func (w *work) wants(s security.Service) bool { return slices.Contains(w.services, s) }

// directory is where the files of this installation are staged.
func (w *work) directory() string { return path.Join(remoteRoot, w.cmd.GetRunId()) }

func (w *work) save(ctx context.Context) error { return w.t.Save(ctx, w.state) }

func (w *work) run(ctx context.Context) (agent.Outcome, error) {
	stages := w.stages()
	for _, s := range stages {
		w.names = append(w.names, job.StageName{Name: s.Name, Description: s.Description})
	}
	err := w.prepare(ctx)
	if err == nil {
		err = runbook.Run(ctx, w.t, stages)
	}
	if err != nil && !security.GoesOn(err) && !errors.Is(context.Cause(ctx), agent.ErrHandedOver) {
		err = w.cleanUp(ctx, err)
	}
	o := agent.Outcome{ResultJSON: w.result(err)}
	if err == nil {
		o.Description = "Completed"
	}
	return o, err
}
