// SPDX-License-Identifier: Apache-2.0

// Package password changes the password of a user of a switch.
//
// A change of the password with which the switch itself is reached is a two-phase
// intent: that it may have been begun is recorded before the first request, and
// whoever goes on after a crash asks the switch which of the two passwords it
// takes, the new one first. So a crash at any point loses nobody the switch.
package password

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// The stages.
const (
	stageInitialize = "initialize"
	stageUpdate     = "update_password"
)

// Phases of a result.
const (
	phaseUpdated   = "password_update_persisted"
	phaseSaved     = "applied_config_persisted"
	phaseRecovered = "factory_default_admin_password_recovered"
)

// Timing holds the waits and limits. A zero field takes its default.
type Timing struct {
	// First is for the login that replaces an expired password.
	First firstlogin.Timing
	// Tries is how often a switch that does not answer is asked which password it
	// takes, when that is in doubt; TryPause is the pause between two. 5, 6 s.
	Tries    int
	TryPause time.Duration
}

func (t Timing) withDefaults() Timing {
	t.First = t.First.WithDefaults()
	if t.TryPause <= 0 {
		t.TryPause = 6 * time.Second
	}
	if t.Tries <= 0 {
		t.Tries = 5
	}
	return t
}

// Options configure the job.
type Options struct {
	Switches *device.Opener
	Timing   Timing
	// Secrets reads the new password; default is (*agent.Task).Secrets.
	Secrets security.Secrets
}

// Update returns the handler of jobs of the type switch_system_password_update.
func Update(o Options) agent.Handler {
	o.Timing = o.Timing.withDefaults()
	if o.Secrets == nil {
		o.Secrets = (*agent.Task).Secrets
	}
	return func(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
		w, err := open(o, t)
		if err != nil {
			return agent.Outcome{}, err
		}
		defer w.sw.Close()
		return w.run(ctx)
	}
}

// state is what the next owner of the job has to know.
type state struct {
	// Intent says that the password may have been changed: which one is valid has to
	// be found out.
	Intent bool `json:"intent,omitempty"`
	// Revision is the one that changes it.
	Revision nvue.Revision `json:"revision,omitempty"`
	// Recovering says that the factory password may have been replaced.
	Recovering bool   `json:"recovering,omitempty"`
	Phase      string `json:"phase,omitempty"`
}

// work is one run of the job.
type work struct {
	t      *agent.Task
	sw     *device.Switch
	opts   Options
	timing Timing
	user   string
	// former is the password of the endpoint, next the one that is to be set.
	former, next secret.Value
	state        state
	// resumed says that an earlier owner has been in the middle of the change.
	resumed bool
	// recovered says that the earlier owner was recovering the factory password.
	recovered bool

	// current logs in to NVUE as the node's endpoint says, fresh as the same user with
	// the new password.
	current, fresh *nvue.Client
	// found is which of them the switch takes; nil before it was asked, and when it
	// takes neither.
	found *nvue.Client
	asked bool
	// refusal is why the factory password has to be tried.
	refusal error
}

func open(o Options, t *agent.Task) (*work, error) {
	var secrets rackbusv1.SwitchPasswordSecrets
	if err := o.Secrets(t, &secrets); err != nil {
		return nil, err
	}
	w := &work{
		t: t, opts: o, timing: o.Timing, user: t.Command().GetSwitchPasswordUpdate().GetUsername(),
		next: secret.New(secrets.GetPassword()),
	}
	if w.user == "" || w.next.Empty() {
		return nil, agent.Fail(job.FailureInvalidArgument, stageInitialize, "the user or the new password is missing", nil)
	}
	if _, err := t.Load(&w.state); err != nil {
		return nil, err
	}
	w.resumed, w.recovered = w.state.Intent, w.state.Recovering
	var err error
	if w.sw, err = o.Switches.Open(t, "", t.Logger()); err != nil {
		return nil, w.fail(stageInitialize, "", err)
	}
	if !w.sw.HasHost() {
		return nil, agent.Fail(job.FailureEndpointMissing, stageInitialize, "the node has no host endpoint", nil)
	}
	w.former, w.current = w.sw.Login.Password, w.sw.NVUE
	w.current.Hide(w.next)
	if w.fresh, err = w.current.WithCredentials(w.sw.Login.User, w.next); err != nil {
		return nil, w.fail(stageInitialize, "", err)
	}
	return w, nil
}

// own reports whether it is the password with which the switch is reached.
func (w *work) own() bool { return w.user == w.sw.Login.User }

// recoverable reports whether the factory password may help.
func (w *work) recoverable() bool { return w.own() && w.user == firstlogin.User }

// unchanged reports whether the new password is the one of the endpoint.
func (w *work) unchanged() bool {
	return w.own() && w.next.Reveal() == w.former.Reveal()
}

// changeLimit is how long a change of the password takes at most: NVUE applies a
// revision within a minute, and is asked before and behind it.
const changeLimit = 5 * time.Minute

func (w *work) run(ctx context.Context) (agent.Outcome, error) {
	err := runbook.Run(ctx, w.t, []agent.Stage{{
		Name: stageInitialize, Description: "Logging in to the switch",
		Resume: agent.Resumable, Interruptible: true, Attempts: w.timing.Tries, Pause: w.timing.TryPause,
		Run: w.identify,
	}, {
		Name: stageUpdate, Description: "Updating the password on the switch",
		Resume: agent.Resumable, Attempts: w.timing.Tries, Pause: w.timing.TryPause, Limit: changeLimit,
		Run: w.update,
	}})
	o := agent.Outcome{Description: "Completed", ResultJSON: w.result(err)}
	if err != nil {
		o.Description = ""
	}
	return o, err
}

// result is the result_json of the job. It has no secret in it.
func (w *work) result(err error) string {
	out := struct {
		RackID   string        `json:"rack_id"`
		NodeID   string        `json:"node_id"`
		Username string        `json:"username"`
		Status   string        `json:"status"`
		Phase    string        `json:"phase,omitempty"`
		Revision nvue.Revision `json:"revision_id,omitempty"`
		Message  string        `json:"error_message,omitempty"`
	}{
		RackID: w.t.Target().GetRackId(), NodeID: w.t.Target().GetNodeId(), Username: w.user, Status: "completed",
		Phase: w.state.Phase, Revision: w.state.Revision,
	}
	if err != nil {
		out.Status, out.Phase, out.Message = "failed", "", w.redact(err.Error())
		if fail, ok := errors.AsType[*agent.FailureError](err); ok {
			out.Message = fail.Failure.Message
		}
	}
	return security.Encode(out)
}

// identify finds out which password the switch takes. The one that may have been
// set already is tried first: a switch that locks accounts counts wrong tries.
func (w *work) identify(ctx context.Context) error {
	order := []*nvue.Client{w.current}
	switch {
	case !w.own() || w.unchanged():
	case w.resumed:
		// Once more at the end: the change may come into force between the two.
		order = []*nvue.Client{w.fresh, w.current, w.fresh}
	default:
		order = append(order, w.fresh)
	}
	w.asked, w.found = true, nil
	for _, client := range order {
		takes, err := w.takes(ctx, client)
		switch {
		case err != nil:
			return w.unreadable(err)
		case takes:
			w.found = client
			return nil
		}
	}
	if !w.own() {
		return w.refused("the switch refuses the credentials of its endpoint; the password of another user was not touched")
	}
	if !w.recoverable() {
		return w.refused("the switch takes neither the former nor the new password")
	}
	w.refusal = errors.New("the switch takes neither the former nor the new password over NVUE")
	return nil
}

func (w *work) refused(message string) error {
	return w.fail(stageInitialize, "", agent.Fail(job.FailureHostAuthFailed, stageInitialize, message, nil))
}

// takes asks whether NVUE takes the credentials of a client.
func (w *work) takes(ctx context.Context, c *nvue.Client) (bool, error) {
	err := c.Initialize(ctx, w.opts.Switches.TLS(), "")
	if errors.Is(err, nvue.ErrUnauthenticated) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Initialize asks nobody where connections are not verified.
	status, err := c.ProbeCredentials(ctx)
	return status != http.StatusUnauthorized, err
}

// unreadable decides what becomes of a switch whose NVUE cannot be asked: one that
// was returned to factory settings has no certificate of ours.
func (w *work) unreadable(err error) error {
	if device.Passes(err) {
		return err
	}
	if w.resumed && nvue.Retryable(err) && !errors.Is(err, nvue.ErrServerCertificate) {
		return agent.Retry(0, w.fail(stageInitialize, "", err))
	}
	if !w.recoverable() {
		return w.fail(stageInitialize, "", err)
	}
	w.refusal = err
	return nil
}
