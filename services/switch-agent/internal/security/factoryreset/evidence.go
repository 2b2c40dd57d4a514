// SPDX-License-Identifier: Apache-2.0

package factoryreset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/firstlogin"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// sight is what one login shows.
type sight uint8

const (
	// sightNothing: no answer.
	sightNothing sight = iota
	// sightRefused: the switch answers and refuses the login.
	sightRefused
	// sightTaken: it takes the login.
	sightTaken
)

// see tries a login and notes what is evidence of the reset. The errors are those
// that end the job.
func (w *work) see(ctx context.Context, login node.Credentials) (sight, error) {
	err := w.logIn(ctx, login)
	if errors.Is(err, ssh.ErrHostKeyChanged) {
		if w.state.KeyKnown {
			w.note(evidenceKey)
		}
		if login.Password.Reveal() != firstlogin.User {
			return sightRefused, nil // a secret is not for whoever has a new key
		}
		// The job is the one that made the switch make a new key.
		err = w.logIn(ctx, login, device.NewHostKey)
	}
	switch {
	case err == nil:
		w.away = 0
		w.last = "it takes the login of " + login.User
		if login.Password.Reveal() == firstlogin.User {
			w.last = "it takes the factory password"
		}
		return sightTaken, nil
	case ctx.Err() != nil || device.Passes(err):
		return sightNothing, err
	case errors.Is(err, ssh.ErrCredentials):
		w.away = 0
		w.last = err.Error()
		return sightRefused, nil
	case ssh.IsKind(err, ssh.KindUnreachable, ssh.KindTimeout, ssh.KindClosed):
		w.last = err.Error()
		if w.away++; w.away >= w.timing.AwayLooks {
			w.note(evidenceAway)
		}
		return sightNothing, nil
	default:
		return sightNothing, security.Failure(stageAwait, "", err)
	}
}

// note keeps the first evidence.
func (w *work) note(evidence string) {
	if w.state.Evidence == "" {
		w.state.Evidence = evidence
		w.t.Logger().Info("factory reset has begun", "op", stageReset, "evidence", evidence)
	}
}

// elapsed reports whether a switch that took the reset has gone down by now.
func (w *work) elapsed() bool { return time.Since(w.state.SentAt) >= w.timing.Down }

// observe decides whether the switch took a reset whose answer was lost. One that
// did goes down before long, or has done so.
func (w *work) observe(ctx context.Context) (agent.Observation, error) {
	for {
		now, err := w.see(ctx, w.login())
		if err != nil {
			return agent.ObservedUnknown, err
		}
		if err := w.compareBoots(ctx, now, w.login()); err != nil {
			return agent.ObservedUnknown, err
		}
		switch {
		case w.state.Evidence != "":
			return agent.ObservedDone, w.t.Set(w.state)
		case now == sightRefused:
			// The accounts were reset; that it goes down is waited for.
			return agent.ObservedDone, nil
		case now != sightTaken || !w.elapsed():
		case w.keepsLogin():
			return agent.ObservedNotStarted, nil
		default:
			// The same login before and after: it may have been reset unseen.
			return agent.ObservedUnknown, nil
		}
		if err := w.t.Sleep(ctx, w.timing.Poll); err != nil {
			return agent.ObservedUnknown, err
		}
	}
}

// keepsLogin reports whether a login that the switch still takes shows that it was
// not reset.
func (w *work) keepsLogin() bool {
	return w.sameBoot || w.configured() && !w.state.AsFactory
}

// compareBoots looks whether the operating system was booted since the reset was
// sent. Without both readings that stays open.
func (w *work) compareBoots(ctx context.Context, now sight, login node.Credentials) error {
	w.sameBoot = false
	if now != sightTaken || w.state.Boot == "" || w.state.Evidence != "" {
		return nil
	}
	boot, err := w.boot(ctx, login)
	if err != nil && (device.Passes(err) || ctx.Err() != nil) {
		return err
	}
	if err == nil && boot != "" {
		if w.sameBoot = boot == w.state.Boot; !w.sameBoot {
			w.note(evidenceBoot)
		}
	}
	return nil
}

// look tries the factory's login. As long as the switch takes the former one it was
// not reset, and the factory's is not tried: wrong passwords lock accounts.
func (w *work) look(ctx context.Context) (sight, error) {
	if w.state.Evidence == "" && w.configured() && !w.state.AsFactory && !w.formerGone {
		former, err := w.see(ctx, w.sw.Login)
		if err != nil || former == sightNothing {
			return former, err
		}
		if former == sightTaken {
			return sightRefused, w.compareBoots(ctx, former, w.sw.Login)
		}
		w.formerGone = true // it counts as wrong from now on
	}
	now, err := w.see(ctx, firstlogin.Factory())
	if err != nil {
		return now, err
	}
	return now, w.compareBoots(ctx, now, firstlogin.Factory())
}

// await waits until the switch is back with factory settings.
func (w *work) await(ctx context.Context) error {
	if w.state.Already {
		return agent.Skip("the switch has factory defaults already")
	}
	if err := w.t.Sleep(ctx, w.timing.Settle); err != nil {
		return err
	}
	steady, end := 0, w.state.SentAt.Add(w.timing.Limit)
	for {
		known := w.state.Evidence
		now, err := w.look(ctx)
		if err != nil {
			return err
		}
		if w.state.Evidence != known {
			if err := w.t.Save(ctx, w.state); err != nil {
				return err
			}
		}
		if now != sightTaken {
			steady = 0
		} else {
			steady++
		}
		done, err := w.judge(ctx, now, steady)
		if err != nil || done {
			return err
		}
		if time.Now().Add(w.timing.Poll).After(end) {
			return agent.Fail(job.FailureTaskTimeout, stageAwait, fmt.Sprintf(
				"the switch is not back with factory defaults within %s; at the last look: %s", w.timing.Limit, w.last), nil)
		}
		if err := w.t.Sleep(ctx, w.timing.Poll); err != nil {
			return err
		}
	}
}

// judge decides whether the reset has finished, or will never.
func (w *work) judge(ctx context.Context, now sight, steady int) (done bool, err error) {
	if now == sightTaken && w.state.Evidence != "" {
		return true, nil
	}
	if w.state.Evidence != "" || !w.elapsed() || !w.configured() || w.state.AsFactory {
		return false, nil
	}
	// It was not seen to go down. The former login tells whether it has, unseen.
	switch {
	case now == sightTaken && steady >= w.timing.SteadyLooks:
		former, err := w.see(ctx, w.sw.Login)
		if err != nil || former != sightRefused {
			return false, err
		}
		w.note(evidenceElapsed)
		return true, w.t.Save(ctx, w.state)
	case now == sightRefused:
		former, err := w.see(ctx, w.sw.Login)
		if err != nil || former != sightTaken {
			return false, err
		}
		return false, agent.Fail(job.FailureTaskTimeout, stageAwait, fmt.Sprintf(
			"the switch took the factory reset, but neither went down within %s nor was reset", w.timing.Down), nil)
	default:
		return false, nil
	}
}
