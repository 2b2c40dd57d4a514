// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"errors"
	"log/slog"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Edit is one change of the configuration, to be staged in a revision. The
// functions of this package that return one say which there are.
type Edit struct {
	what    string
	method  string
	path    string
	body    any
	secrets []secret.Value
}

// String names the edit; it shows no values.
func (e Edit) String() string { return e.what }

// GoString names the edit for %#v.
func (e Edit) GoString() string { return e.what }

// Outcome is what a change has come to.
type Outcome struct {
	Revision Revision
	// Changed is false when the configuration was in force before.
	Changed bool
	// Saved reports that the configuration survives a reboot, as far as this change
	// is concerned.
	Saved bool
}

// Change makes one revision of edits, applies it, waits for it and saves it. When
// any of that fails the revision is discarded, also when the caller's context has
// ended. Saving is left out when nothing changed. An error after the application
// comes with an Outcome that says how far it got.
//
// An application whose answer was lost is judged by the revision's state.
func (c *Client) Change(ctx context.Context, edits ...Edit) (Outcome, error) {
	rev, err := c.CreateRevision(ctx)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Revision: rev}
	if err = c.StageRevision(ctx, rev, edits...); err == nil {
		out, err = c.applyAndSave(ctx, rev)
	}
	// The steps leave the revision to whoever goes on with it; nobody will.
	if err != nil && !out.Changed && interrupted(ctx, err) {
		c.discard(ctx, rev)
	}
	return out, err
}

// FinishRevision takes a revision that was staged from whatever it has come to
// up to its saving: what was never applied is applied, what is under way is
// waited for, what is applied is saved. It may be called again with the same
// revision after a crash at any point. When the caller's context ends or the hold
// is lost the revision is left as it is; any other failure discards it. A
// revision the switch does not know any more gives ErrNotFound: whether its edits
// are in force has to be read.
func (c *Client) FinishRevision(ctx context.Context, rev Revision) (Outcome, error) {
	s, err := c.watchRevision(ctx, rev, nil, func(RevisionStatus) bool { return true })
	switch {
	case err != nil:
		if !interrupted(ctx, err) && !errors.Is(err, ErrNotFound) {
			c.discard(ctx, rev)
		}
		return Outcome{Revision: rev}, err
	case s.Untouched && s.Verdict == RevisionPending:
		return c.applyAndSave(ctx, rev)
	default:
		return c.awaitAndSave(ctx, rev)
	}
}

func (c *Client) applyAndSave(ctx context.Context, rev Revision) (Outcome, error) {
	applied := c.ApplyRevision(ctx, rev)
	if applied != nil && (interrupted(ctx, applied) || !OutcomeUnknown(applied)) {
		return Outcome{Revision: rev}, applied
	}
	out, err := c.awaitAndSave(ctx, rev)
	if e, ok := errors.AsType[*Error](err); ok && applied != nil && !out.Changed {
		e.reason += "; the answer to its application was lost: " + applied.Error()
	}
	return out, err
}

func (c *Client) awaitAndSave(ctx context.Context, rev Revision) (Outcome, error) {
	out := Outcome{Revision: rev}
	s, err := c.AwaitRevision(ctx, rev, nil)
	if err != nil {
		return out, err
	}
	if s.Verdict == RevisionNoDiff {
		return out, nil
	}
	out.Changed = true
	if !s.Saved {
		if err := c.SaveRevision(ctx, rev); err != nil {
			return out, err
		}
	}
	out.Saved = true
	return out, nil
}

// discard removes a revision of which nothing will come. It has a time of its
// own, since the caller's may be over; that it fails is only logged, the failure
// that led here is what counts.
func (c *Client) discard(ctx context.Context, rev Revision) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timing.Discard)
	defer cancel()
	if err := c.DiscardRevision(ctx, rev); err != nil {
		c.log.Warn("revision not discarded", slog.String("revision", string(rev)), slog.Any("err", err))
	}
}
