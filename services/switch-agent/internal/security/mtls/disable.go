// SPDX-License-Identifier: Apache-2.0

package mtls

import (
	"context"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// Mode says why mutual TLS is taken away.
type Mode string

// The modes: on request, or because connections to switches are not verified
// (insecure_switch), when the installation of certificates means their removal.
const (
	ModeDisable  Mode = "disable-mtls"
	ModeInsecure Mode = "insecure-switch"
)

// stageUnset is the only stage.
const stageUnset = "unset_mtls_mode"

// Options configure the job.
type Options struct {
	Switches *device.Opener
	// Pause between two command lines; default DefaultPause.
	Pause time.Duration
}

// result is the result_json of the job.
type result struct {
	Status    string       `json:"status"`
	Operation string       `json:"operation"`
	Mode      Mode         `json:"mode"`
	Services  []string     `json:"services"`
	Commands  []string     `json:"commands,omitempty"`
	Timing    job.Timeline `json:"timing_summary"`
}

// Disable returns the handler of jobs of the type switch_mtls_disable.
func Disable(o Options) agent.Handler {
	return func(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
		services, err := security.ParseServices(t.Command().GetSwitchMtlsDisable().GetServices())
		if err != nil {
			return agent.Outcome{}, agent.Fail(job.FailureInvalidArgument, stageUnset, err.Error(), err)
		}
		return Run(ctx, t, o, services, ModeDisable)
	}
}

// Run takes mutual TLS from services as a job of one stage, which is left between two
// command lines and may be repeated as a whole.
func Run(ctx context.Context, t *agent.Task, o Options, services []security.Service, mode Mode) (agent.Outcome, error) {
	sw, err := o.Switches.Open(t, "", t.Logger())
	if err != nil {
		return agent.Outcome{}, security.Failure(stageUnset, "", err)
	}
	defer sw.Close()
	var commands []string
	err = runbook.Run(ctx, t, []agent.Stage{{
		Name: stageUnset, Description: "Taking mutual TLS from services of the switch over SSH",
		Resume: agent.Repeatable, Heeds: true,
		Run: func(ctx context.Context) error {
			shell, err := sw.SSH()
			if err != nil {
				return security.Failure(stageUnset, "", err)
			}
			defer shell.Close()
			if commands, err = Unset(ctx, shell, services, o.Pause, t.SafePoint); err != nil {
				return security.Failure(stageUnset, "", err)
			}
			return t.Failpoint(agent.FailAfterDeviceChange)
		},
	}})
	r := result{
		Status: security.Status(err), Operation: "unset_mtls", Mode: mode, Services: security.Labels(services),
		Timing: security.Timeline(t, nil),
	}
	if err != nil {
		return agent.Outcome{ResultJSON: security.Encode(r)}, err
	}
	r.Commands = commands
	return agent.Outcome{Description: "Completed", ResultJSON: security.Encode(r)}, nil
}
