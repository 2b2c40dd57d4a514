// SPDX-License-Identifier: Apache-2.0

package password

import (
	"context"
	"errors"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// update is the second stage: it goes on from whatever password the switch takes.
func (w *work) update(ctx context.Context) error {
	if !w.asked {
		if err := w.identify(ctx); err != nil {
			return err
		}
	}
	w.asked = false // a further try asks again
	switch {
	case w.found == nil:
		return w.recover(ctx)
	case w.found == w.fresh:
		return w.finish(ctx)
	case w.unchanged():
		return w.save(ctx, w.current, phaseSaved)
	default:
		return w.rotate(ctx)
	}
}

// intend records that from here on the password may change. It is the last point at
// which the job can be stopped.
func (w *work) intend(ctx context.Context) error {
	if w.state.Intent {
		return nil
	}
	if err := w.t.SafePoint(ctx); err != nil {
		return err
	}
	w.state.Intent = true
	if err := w.t.Save(ctx, w.state); err != nil {
		return err
	}
	return w.t.Failpoint(agent.FailAfterIntent)
}

// rotate changes the password while the former one is valid.
func (w *work) rotate(ctx context.Context) error {
	if err := w.intend(ctx); err != nil {
		return err
	}
	if err := w.prepare(ctx); err != nil {
		err = w.fail(stageUpdate, "the password was not changed", err)
		// A change that was under way may just have come into force.
		if errors.Is(err, nvue.ErrUnauthenticated) && w.own() || w.resumed && nvue.Retryable(err) {
			return agent.Retry(0, err)
		}
		return err
	}
	await := w.awaitOwn
	if !w.own() {
		await = w.awaitOther
	}
	saved, err := await(ctx)
	if err != nil {
		return w.fail(stageUpdate, "", err)
	}
	return w.persist(ctx, saved)
}

// prepare brings the revision as far as its application, from wherever an earlier
// owner left it. What the switch says counts, not what was noted.
func (w *work) prepare(ctx context.Context) error {
	if w.state.Revision != "" {
		s, err := w.current.LookAtRevision(ctx, w.state.Revision)
		switch {
		case errors.Is(err, nvue.ErrNotFound):
			w.state.Revision = ""
		case errors.Is(err, nvue.ErrUnauthenticated) && w.own():
			return nil // the switch has just changed the password
		case err != nil:
			return err
		case !s.Untouched || s.Verdict != nvue.RevisionPending:
			return nil // it was applied, or is being applied
		}
	}
	if w.state.Revision == "" {
		rev, err := w.current.CreateRevision(ctx)
		if err != nil {
			return err
		}
		w.state.Revision = rev
		w.t.InFlight("revision " + string(rev))
		if err := w.t.Save(ctx, w.state); err != nil {
			return err
		}
		if err := w.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
			return err
		}
	}
	// Staging the same twice changes nothing.
	if err := w.current.StageRevision(ctx, w.state.Revision, nvue.SetUserPassword(w.user, w.next)); err != nil {
		return err
	}
	if err := w.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	if err := w.apply(ctx); err != nil {
		return err
	}
	return w.t.Failpoint(agent.FailAfterDeviceChange)
}

// apply starts the application. A lost answer is judged by the revision.
func (w *work) apply(ctx context.Context) error {
	if err := w.current.ApplyRevision(ctx, w.state.Revision); err != nil && !nvue.OutcomeUnknown(err) {
		return err
	}
	return nil
}

// awaitOwn waits until the switch takes the new password and says that the revision
// is applied. As long as the former one shows it under way, the new one is not
// tried: wrong passwords lock accounts.
func (w *work) awaitOwn(ctx context.Context) (saved bool, err error) {
	timing := w.current.Timing()
	end := time.Now().Add(timing.RevisionLimit)
	for {
		s, err := w.lookOwn(ctx)
		switch {
		case err != nil && (!waitsOut(err) || ctx.Err() != nil):
			return false, err
		case err == nil && s.Verdict == nvue.RevisionFailed:
			_ = w.current.DiscardRevision(ctx, w.state.Revision) // what led here counts
			return false, &nvue.Error{Op: "change password", Code: nvue.ErrRevisionFailed, Issue: s.Issue}
		case err == nil && s.Verdict != nvue.RevisionPending:
			return s.Saved, nil
		case err == nil && s.Untouched:
			// The request to apply it got lost on the way.
			if err := w.apply(ctx); err != nil {
				return false, err
			}
		}
		if time.Now().Add(timing.RevisionPoll).After(end) {
			return false, &nvue.Error{
				Op: "change password", Code: nvue.ErrTimeout,
				Issue: "the switch did not take the new password within " + timing.RevisionLimit.String() + "; the next update finds out which one it takes",
			}
		}
		if err := w.t.Sleep(ctx, timing.RevisionPoll); err != nil {
			return false, err
		}
	}
}

// lookOwn looks at the revision. That it is applied counts only when it was read
// with the new password.
func (w *work) lookOwn(ctx context.Context) (nvue.RevisionStatus, error) {
	s, err := w.current.LookAtRevision(ctx, w.state.Revision)
	switch {
	case err == nil && (s.Verdict == nvue.RevisionPending || s.Verdict == nvue.RevisionFailed):
		return s, nil
	case err != nil && !waitsOut(err):
		return s, err
	}
	s, err = w.fresh.LookAtRevision(ctx, w.state.Revision)
	if errors.Is(err, nvue.ErrNotFound) {
		// Taken, and the revision forgotten.
		return nvue.RevisionStatus{Verdict: nvue.RevisionApplied}, nil
	}
	return s, err
}

// waitsOut are the errors of a switch that is changing the password.
func waitsOut(err error) bool {
	return errors.Is(err, nvue.ErrUnauthenticated) || errors.Is(err, nvue.ErrNotFound) || nvue.Retryable(err)
}

// awaitOther waits for the password of another user.
func (w *work) awaitOther(ctx context.Context) (saved bool, err error) {
	out, err := w.current.FinishRevision(ctx, w.state.Revision)
	return out.Saved, err
}

// persist makes the new password survive a restart, also when it was in force
// before: an earlier change may have lacked just that.
func (w *work) persist(ctx context.Context, saved bool) error {
	client := w.current
	if w.own() {
		if err := w.adopt(); err != nil {
			return err
		}
		client = w.fresh
	}
	if saved {
		return w.done(ctx, phaseUpdated)
	}
	return w.save(ctx, client, phaseUpdated)
}

// finish goes on where the switch takes the new password already.
func (w *work) finish(ctx context.Context) error {
	if err := w.adopt(); err != nil {
		return err
	}
	if w.state.Revision == "" {
		return w.save(ctx, w.fresh, w.finished())
	}
	s, err := w.fresh.LookAtRevision(ctx, w.state.Revision)
	if err == nil && s.Untouched && s.Verdict == nvue.RevisionPending {
		// Another one has changed the password; this one is not needed.
		_ = w.fresh.DiscardRevision(ctx, w.state.Revision)
		w.state.Revision = ""
		return w.save(ctx, w.fresh, w.finished())
	}
	if err == nil || nvue.Retryable(err) {
		s, err = w.fresh.AwaitRevision(ctx, w.state.Revision, nil)
	}
	switch {
	case errors.Is(err, nvue.ErrNotFound):
		// Restarted meanwhile, or discarded.
		return w.save(ctx, w.fresh, w.finished())
	case err != nil:
		return w.fail(stageUpdate, "the switch takes the new password, but", err)
	case s.Saved:
		return w.done(ctx, w.finished())
	default:
		return w.save(ctx, w.fresh, w.finished())
	}
}

// finished is the phase of a change that was found done.
func (w *work) finished() string {
	if w.recovered {
		return phaseRecovered
	}
	return phaseUpdated
}

func (w *work) save(ctx context.Context, client *nvue.Client, phase string) error {
	if err := client.SaveRevision(ctx, w.state.Revision); err != nil {
		return w.fail(stageUpdate, "the password is in force, but would be lost at a restart since it was not saved", err)
	}
	if err := w.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	return w.done(ctx, phase)
}

// adopt makes the new password the one of this run.
func (w *work) adopt() error {
	return w.sw.Adopt(node.Credentials{User: w.sw.Login.User, Password: w.next})
}

func (w *work) done(ctx context.Context, phase string) error {
	w.state.Phase = phase
	return w.t.Save(ctx, w.state)
}
