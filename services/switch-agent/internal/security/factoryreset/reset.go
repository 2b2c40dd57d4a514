// SPDX-License-Identifier: Apache-2.0

// Package factoryreset returns a switch to factory settings.
//
// The reset is sent once. It has finished when the switch takes the password of the
// factory and there is evidence that it went down for the reset: it was not
// reachable, has another host key, or was booted anew. A switch that takes that
// password while it has not gone down yet is not taken for a reset one.
package factoryreset

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// The stages.
const (
	stageReset = "factory_reset"
	stageAwait = "await_factory_defaults"
)

// sendAttempts is how often the reset may be sent.
const sendAttempts = 2

// sendLimit is how long a switch may take to answer to the reset.
const sendLimit = time.Minute

// Timing holds the waits and limits. A zero field takes its default.
type Timing struct {
	// Settle passes before the first look whether the reset has begun, Poll between
	// two looks. 5 s, 5 s.
	Settle time.Duration
	Poll   time.Duration
	// Login bounds one login over SSH. 30 s.
	Login time.Duration
	// Down is how long a switch that took the reset may take to go down. 5 min.
	Down time.Duration
	// Limit bounds the reset as a whole. 30 min.
	Limit time.Duration
	// AwayLooks is how often in a row a switch must not answer to count as gone, and
	// SteadyLooks how often in a row it has to take the factory password when it was
	// not seen to go. 2, 3.
	AwayLooks   int
	SteadyLooks int
}

func (t Timing) withDefaults() Timing {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&t.Settle, 5 * time.Second},
		{&t.Poll, 5 * time.Second},
		{&t.Login, 30 * time.Second},
		{&t.Down, 5 * time.Minute},
		{&t.Limit, 30 * time.Minute},
	} {
		if *f.field <= 0 {
			*f.field = f.value
		}
	}
	for _, n := range []struct {
		field *int
		value int
	}{{&t.AwayLooks, 2}, {&t.SteadyLooks, 3}} {
		if *n.field <= 0 {
			*n.field = n.value
		}
	}
	return t
}

// Options configure the job.
type Options struct {
	Switches *device.Opener
	Timing   Timing
}

// Reset returns the handler of jobs of the type switch_factory_default_reset.
func Reset(o Options) agent.Handler {
	o.Timing = o.Timing.withDefaults()
	return func(ctx context.Context, t *agent.Task) (agent.Outcome, error) {
		w := &work{t: t, opts: o, timing: o.Timing}
		if _, err := t.Load(&w.state); err != nil {
			return agent.Outcome{}, err
		}
		var err error
		w.sw, err = o.Switches.Open(t, t.Command().GetSwitchFactoryReset().GetDomain(), t.Logger())
		if err != nil {
			return agent.Outcome{}, security.Failure(stageReset, "", err)
		}
		defer w.sw.Close()
		if !w.sw.HasHost() {
			return agent.Outcome{}, agent.Fail(job.FailureEndpointMissing, stageReset, "the node has no host endpoint", nil)
		}
		return w.run(ctx)
	}
}

// state is what the next owner of the job has to know.
type state struct {
	// SentAt is when the reset was about to be sent.
	SentAt time.Time `json:"sent_at,omitzero"`
	// Already says that the switch had factory settings.
	Already bool `json:"already,omitempty"`
	// AsFactory says that the switch took the factory password for the request.
	AsFactory bool `json:"as_factory,omitempty"`
	// Boot is the boot of the operating system before the reset, empty when it could
	// not be read.
	Boot string `json:"boot,omitempty"`
	// KeyKnown says that the switch showed its known host key before the reset.
	KeyKnown bool `json:"key_known,omitempty"`
	// Evidence is why the switch is known to have gone down.
	Evidence string `json:"evidence,omitempty"`
}

// What is told of the evidence.
const (
	evidenceAway    = "it went down and came back"
	evidenceKey     = "it has a new host key"
	evidenceBoot    = "it was booted anew"
	evidenceElapsed = "its former credentials are gone, and it had ample time to go down"
)

// work is one run of the job.
type work struct {
	t      *agent.Task
	sw     *device.Switch
	opts   Options
	timing Timing
	state  state
	// formerGone says that the switch has refused the former login.
	formerGone bool
	// sameBoot says that the last look met the boot from before the reset.
	sameBoot bool
	// away counts looks in a row at which the switch did not answer.
	away int
	// last is what the last look showed, for the failure.
	last string
}

// configured reports whether the endpoint's login is another than the factory's.
func (w *work) configured() bool {
	return w.sw.Login.User != firstlogin.User || w.sw.Login.Password.Reveal() != firstlogin.User
}

func (w *work) run(ctx context.Context) (agent.Outcome, error) {
	const text = "Resetting the switch to factory defaults"
	err := runbook.Run(ctx, w.t, []agent.Stage{{
		Name: stageReset, Description: "Sending the factory reset", Text: text, Resume: agent.Once,
		// Once more only when the switch shows that it never got the request.
		Attempts: sendAttempts,
		Prepare:  w.prepare, Run: w.send, Observe: w.observe, Limit: sendLimit,
	}, {
		Name: stageAwait, Description: "Waiting for factory defaults", Text: text, Resume: agent.Resumable,
		Run: w.await, Limit: w.timing.Limit,
	}})
	switch {
	case err != nil:
		return agent.Outcome{}, err
	case w.state.Already:
		return agent.Outcome{Description: "Factory reset completed: the switch has factory defaults already"}, nil
	default:
		return agent.Outcome{Description: "Factory reset completed: " + w.state.Evidence}, nil
	}
}

// prepare finds out with which login the switch takes requests, and what tells the
// time before the reset from that after it.
func (w *work) prepare(ctx context.Context) error {
	takes, err := w.takes(ctx, w.sw.NVUE)
	if err != nil {
		return security.Failure(stageReset, "", err)
	}
	if !takes {
		if err := w.asFactory(ctx); err != nil {
			return err
		}
	}
	if err := w.before(ctx); err != nil {
		return err
	}
	w.state.SentAt = time.Now()
	return w.t.Set(w.state)
}

// before reads what the time after the reset is compared with. A switch whose host
// key is not the known one is not touched: the new key would count as evidence.
func (w *work) before(ctx context.Context) error {
	boot, err := w.boot(ctx, w.login())
	var exit *ssh.ExitError
	switch {
	case err == nil:
		w.state.Boot, w.state.KeyKnown = boot, true
	case errors.As(err, &exit):
		w.state.KeyKnown = true
	case device.Passes(err) || ctx.Err() != nil:
		return err
	case ssh.IsKind(err, ssh.KindHostKey):
		return security.Failure(stageReset, "the reset was not sent", err)
	default:
		w.t.Logger().Warn("switch not reached over ssh before its reset", "op", stageReset, "err", err)
	}
	return nil
}

// asFactory goes on with the factory password where the switch refuses the login of
// its endpoint. A switch that takes it over SSH only waits for its first login: it
// has factory settings.
func (w *work) asFactory(ctx context.Context) error {
	refused := agent.Fail(job.FailureHostAuthFailed, stageReset,
		"the switch takes neither the credentials of its endpoint nor those of the factory", nil)
	if !w.configured() {
		return w.firstLogin(ctx, refused)
	}
	view, err := w.sw.NVUE.WithCredentials(firstlogin.User, firstlogin.Factory().Password)
	if err != nil {
		return security.Failure(stageReset, "", err)
	}
	takes, err := w.takes(ctx, view)
	if err != nil {
		return security.Failure(stageReset, "", err)
	}
	if !takes {
		return w.firstLogin(ctx, refused)
	}
	w.state.AsFactory = true
	return nil
}

func (w *work) firstLogin(ctx context.Context, refused error) error {
	err := w.logIn(ctx, firstlogin.Factory())
	if err != nil && (device.Passes(err) || ctx.Err() != nil) {
		return err
	}
	if err != nil {
		return errors.Join(refused, err)
	}
	w.state.Already = true
	if err := w.t.Set(w.state); err != nil {
		return err
	}
	return agent.Skip("the switch has factory defaults already")
}

func (w *work) takes(ctx context.Context, c *nvue.Client) (bool, error) {
	err := c.Initialize(ctx, w.opts.Switches.TLS(), w.sw.Domain())
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

// login is what the switch takes before the reset.
func (w *work) login() node.Credentials {
	if w.state.AsFactory {
		return firstlogin.Factory()
	}
	return w.sw.Login
}

// send sends the reset, once. A lost answer is judged by the switch.
func (w *work) send(ctx context.Context) error {
	// A second request starts the time anew.
	w.state.SentAt = time.Now()
	if err := w.t.Save(ctx, w.state); err != nil {
		return err
	}
	login := w.login()
	client, err := w.sw.NVUE.WithCredentials(login.User, login.Password)
	if err != nil {
		return security.Failure(stageReset, "", err)
	}
	w.t.InFlight("factory reset")
	id, err := client.StartAction(ctx, nvue.ResetToFactory())
	if err != nil {
		return device.Uncertain(security.Failure(stageReset, "", err))
	}
	w.t.InFlight("factory reset, action " + string(id))
	return w.t.Failpoint(agent.FailAfterDeviceChange)
}

// boot names the present boot of the operating system.
func (w *work) boot(ctx context.Context, login node.Credentials) (string, error) {
	return w.sw.BootID(ctx, login, w.timing.Login)
}

// logIn tries a login over SSH.
func (w *work) logIn(ctx context.Context, login node.Credentials, options ...device.SSHOption) error {
	shell, err := w.sw.SSHAs(login, options...)
	if err != nil {
		return err
	}
	defer shell.Close()
	limited, cancel := context.WithTimeout(ctx, w.timing.Login)
	defer cancel()
	return shell.Connect(limited)
}
