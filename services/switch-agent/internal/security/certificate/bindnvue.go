// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// bindNVUE binds the certificate to the interface that is asked to do so. The
// application cuts the connection; what came of it is asked over a new one, which
// verifies the switch and identifies us.
func (w *work) bindNVUE(ctx context.Context, stage string) error {
	id, ca := w.cmd.GetEntityCertificateId(), w.cmd.GetCaCertificateId()
	if _, err := w.security(); err != nil {
		return err
	}
	inForce := func(ctx context.Context) (bool, error) {
		now, err := w.sw.NVUE.APICertificate(ctx)
		if err != nil || now != id {
			return false, err
		}
		nowCA, err := w.sw.NVUE.APIClientCA(ctx)
		return nowCA == ca, err
	}
	rev, err := w.stage(ctx, stage, []nvue.Edit{nvue.SetAPICertificate(id), nvue.SetAPIClientCA(ca)}, inForce)
	if err != nil {
		return err
	}
	applied := w.applyNVUE(ctx, rev)
	if applied != nil && !lost(applied) {
		return applied
	}
	if err := w.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
		return err
	}
	if err := w.turnOver(ctx, rev); err != nil {
		if applied != nil && !device.Passes(err) {
			err = fmt.Errorf("%w; the application itself ended with: %w", err, applied)
		}
		return err
	}
	if rev == "" {
		err = w.sw.NVUE.SaveRevision(ctx, "")
	} else {
		err = w.finish(ctx, rev)
	}
	if err != nil {
		return err
	}
	// Until here the former certificate may have been shown.
	return w.activate(ctx)
}

// applyNVUE starts the application unless an earlier owner did.
func (w *work) applyNVUE(ctx context.Context, rev nvue.Revision) error {
	if rev == "" {
		return nil
	}
	s, err := w.sw.NVUE.LookAtRevision(ctx, rev)
	if err != nil || !s.Untouched || s.Verdict != nvue.RevisionPending {
		return err
	}
	return w.sw.NVUE.ApplyRevision(ctx, rev)
}

// turnOver waits until the switch is reached over the new connection. While the
// former one still tells of the revision, that it is under way costs no try, and that
// it failed ends the wait.
func (w *work) turnOver(ctx context.Context, rev nvue.Revision) error {
	timing := w.sw.NVUE.Timing()
	end := time.Now().Add(timing.RevisionLimit)
	for tries := 0; ; {
		err := w.activate(ctx)
		if err == nil || !lost(err) || ctx.Err() != nil {
			return err
		}
		pause := w.timing.HelloPause
		s, look := w.look(ctx, rev)
		switch {
		case look == nil && s.Verdict == nvue.RevisionFailed:
			_ = w.sw.NVUE.DiscardRevision(ctx, rev) // what led here counts
			return &nvue.Error{Op: "bind certificate to nvue", Code: nvue.ErrRevisionFailed, Issue: s.Issue}
		case look == nil && s.Verdict == nvue.RevisionPending && time.Now().Before(end):
			pause = timing.RevisionPoll
		default:
			if tries++; tries >= w.timing.HelloTries {
				return fmt.Errorf("the switch is not reached with its new certificate: %w", err)
			}
		}
		if err := w.t.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// look reads the revision over the connection in force.
func (w *work) look(ctx context.Context, rev nvue.Revision) (nvue.RevisionStatus, error) {
	if rev == "" {
		return nvue.RevisionStatus{}, errors.New("the revision is forgotten")
	}
	return w.sw.NVUE.LookAtRevision(ctx, rev)
}

// security is how the switch is reached from now on. Our own material has to be the
// one that was proved before anything was changed.
func (w *work) security() (nvue.Security, error) {
	own, err := w.own()
	if err != nil {
		return nvue.Security{}, agent.Fail(failureOf(err), stageBind, err.Error(), err)
	}
	return nvue.Security{Material: own, ServerName: w.sw.ServerName()}, nil
}

// activate proves a new verified connection and puts it in the place of the present
// one.
func (w *work) activate(ctx context.Context) error {
	s, err := w.security()
	if err != nil {
		return err
	}
	next, err := w.sw.NVUE.Candidate(s)
	if err != nil {
		return err
	}
	if err := next.Probe(ctx); err != nil {
		next.Close()
		return err
	}
	return w.sw.NVUE.Activate(next)
}
