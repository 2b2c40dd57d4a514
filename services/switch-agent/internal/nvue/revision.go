// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

// Revision names a pending change of the configuration.
type Revision string

// Applied is the configuration in force, for reads and for saving.
const Applied Revision = "applied"

// noDiff is what NVUE says when a revision changes nothing. It comes with a
// failed state.
const noDiff = "config apply executed with no config diff"

// RevisionVerdict is what a revision has come to.
type RevisionVerdict uint8

// The verdicts.
const (
	// RevisionPending: the switch is not done.
	RevisionPending RevisionVerdict = iota
	// RevisionApplied: the configuration is in force.
	RevisionApplied
	// RevisionNoDiff: the configuration was in force before.
	RevisionNoDiff
	// RevisionFailed: the switch will not apply it.
	RevisionFailed
)

// RevisionStatus is one look at a revision.
type RevisionStatus struct {
	Verdict RevisionVerdict
	// State is the switch's own word.
	State string
	// Issue is what the switch has to say, secrets removed.
	Issue string
	// Saved reports a state that says the configuration was saved as well.
	Saved bool
	// Untouched reports a state in which the revision was never applied.
	Untouched bool

	// applied reports a state that says so, whatever the issue says.
	applied bool
}

// CreateRevision opens a revision.
func (c *Client) CreateRevision(ctx context.Context) (Revision, error) {
	r := call{op: "create revision", method: http.MethodPost, path: resource("revision"), body: struct{}{}}
	raw, err := c.do(ctx, r)
	if err != nil {
		return "", err
	}
	if rev := revisionID(raw); rev != "" {
		return rev, nil
	}
	return "", &Error{Op: r.op, Method: r.method, Path: r.path, Code: ErrBadResponse, Sent: true, reason: "the answer names no revision"}
}

// revisionID knows all forms in which NVUE names a new revision: a string, a
// number, an object keyed by it, an object with a member for it.
func revisionID(raw json.RawMessage) Revision {
	if id, ok := scalar(raw); ok {
		return Revision(strings.TrimSpace(id))
	}
	d := asDocument(raw)
	if len(d) == 1 {
		for id, value := range d {
			if body := asDocument(value); body["state"] != nil || body["transition"] != nil {
				return Revision(id)
			}
		}
	}
	return Revision(strings.TrimSpace(d.first("revision-id", "id")))
}

// StageRevision puts edits into a revision. A failure discards it, unless it is
// only that the caller's context ended or the hold was lost: then the revision
// may be staged again, which changes nothing, or has to be discarded.
func (c *Client) StageRevision(ctx context.Context, rev Revision, edits ...Edit) error {
	for _, e := range edits {
		_, err := c.do(ctx, call{op: "stage " + e.what, method: e.method, path: at(e.path, rev), body: e.body, secrets: e.secrets})
		if err != nil {
			if !interrupted(ctx, err) {
				c.discard(ctx, rev)
			}
			return err
		}
	}
	return nil
}

// prompt answers what NVUE would ask on a terminal.
type prompt struct {
	State string `json:"state"`
	Auto  struct {
		Answer string `json:"ays"`
	} `json:"auto-prompt"`
}

func answered(state string) prompt {
	p := prompt{State: state}
	p.Auto.Answer = "ays_yes"
	return p
}

func revisionPath(rev Revision) string { return resource("revision", string(rev)) }

// ApplyRevision starts the application of a revision; AwaitRevision tells what
// came of it. A clear refusal discards the revision. When the outcome is not
// known (OutcomeUnknown) it stays, since it may be under way: applying a
// certificate cuts the very connection that asked for it.
func (c *Client) ApplyRevision(ctx context.Context, rev Revision) error {
	_, err := c.do(ctx, call{op: "apply revision", method: http.MethodPatch, path: revisionPath(rev), body: answered("apply"), unread: true})
	if err != nil && !interrupted(ctx, err) && !OutcomeUnknown(err) {
		c.discard(ctx, rev)
	}
	return err
}

// LookAtRevision reads what a revision has come to, once.
func (c *Client) LookAtRevision(ctx context.Context, rev Revision) (RevisionStatus, error) {
	raw, err := c.get(ctx, "read revision", revisionPath(rev))
	if err != nil {
		return RevisionStatus{}, err
	}
	s := judgeRevision(rev, raw)
	s.Issue = c.words(s.Issue)
	return s, nil
}

// judgeRevision reads the flat and the keyed form. That the configuration was in
// force already counts first, then an issue that says of itself to be an error,
// then the state.
func judgeRevision(rev Revision, raw json.RawMessage) RevisionStatus {
	d := asDocument(raw)
	if d["state"] == nil && d["transition"] == nil {
		inner := d.object(string(rev))
		if inner == nil && len(d) == 1 {
			for _, only := range d {
				inner = asDocument(only)
			}
		}
		d = inner
	}
	issue := d.object("transition")["issue"]
	s := RevisionStatus{State: d.text("state"), Issue: issueText(issue)}
	if s.Issue == "" {
		s.Issue = d.text("message")
	}
	state := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(s.State)), "-", "_")
	s.applied = appliedState(state)
	s.Untouched = state == "pending" || state == "inactive"
	switch {
	case mentions(issue, noDiff):
		s.Verdict = RevisionNoDiff
	case s.applied && !severe(issue):
		s.Verdict, s.Saved = RevisionApplied, state != string(Applied)
	case s.applied, failedState(state):
		s.Verdict = RevisionFailed
	}
	return s
}

func appliedState(state string) bool {
	switch state {
	case "applied", "applied_and_saved", "applied_saved", "saved_and_applied", "saved":
		return true
	default:
		return false
	}
}

// failedState reports states that lead nowhere: the switch has given up, or waits
// for somebody who is not there.
func failedState(state string) bool {
	switch state {
	case "failed", "fail", "error", "invalid", "confirm", "aborted", "cancelled", "canceled", "rejected",
		"rolled_back", "rollback", "reverted":
		return true
	}
	for _, suffix := range [...]string{"_fail", "_failed", "_error", "_invalid", "_no"} {
		if strings.HasSuffix(state, suffix) {
			return true
		}
	}
	return false
}

// severe reports an issue whose severity is error or worse. Issues without one
// may be remarks.
func severe(issue json.RawMessage) bool {
	found := false
	leaves(issue, "", 0, func(key, text string) {
		if strings.EqualFold(key, "severity") {
			switch strings.ToLower(strings.TrimSpace(text)) {
			case "error", "critical", "fatal":
				found = true
			}
		}
	})
	return found
}

// AwaitRevision waits until the switch has applied a revision or refused it, at
// most Timing.RevisionLimit. Errors for which retry says so are waited out; nil
// means Retryable. Every failure (ErrRevisionFailed, ErrTimeout, an error that
// ends the wait) discards the revision. Only when the caller's context ends or
// the hold is lost it stays, since nothing is wrong with it.
func (c *Client) AwaitRevision(ctx context.Context, rev Revision, retry func(error) bool) (RevisionStatus, error) {
	s, err := c.watchRevision(ctx, rev, retry, func(s RevisionStatus) bool { return s.Verdict != RevisionPending })
	if err == nil && s.Verdict == RevisionFailed {
		err = &Error{Op: waitOp, Code: ErrRevisionFailed, Issue: s.Issue, reason: "state " + quoted(c.words(s.State))}
	}
	if err != nil && !s.applied && !interrupted(ctx, err) && !errors.Is(err, ErrNotFound) {
		c.discard(ctx, rev)
	}
	return s, err
}

const waitOp = "wait for revision"

// watchRevision looks at a revision until enough says so.
func (c *Client) watchRevision(
	ctx context.Context, rev Revision, retry func(error) bool, enough func(RevisionStatus) bool,
) (RevisionStatus, error) {
	if retry == nil {
		retry = Retryable
	}
	end := time.Now().Add(c.timing.RevisionLimit)
	var last RevisionStatus
	for {
		s, err := c.LookAtRevision(ctx, rev)
		switch {
		case err != nil && (interrupted(ctx, err) || !retry(err)):
			return last, err
		case err == nil && enough(s):
			return s, nil
		case err == nil:
			last = s
		}
		if time.Now().Add(c.timing.RevisionPoll).After(end) {
			return last, &Error{Op: waitOp, Code: ErrTimeout, Issue: last.Issue, cause: err,
				reason: "not applied within " + c.timing.RevisionLimit.String() + ", last state " + quoted(c.words(last.State))}
		}
		if err := sleep(ctx, waitOp, c.timing.RevisionPoll); err != nil {
			return last, err
		}
	}
}

func quoted(s string) string { return `"` + s + `"` }

// SaveRevision keeps the applied configuration over a reboot. Where the switch
// does not save what is applied, the revision itself is saved.
func (c *Client) SaveRevision(ctx context.Context, rev Revision) error {
	primary := c.save(ctx, Applied)
	if primary == nil || interrupted(ctx, primary) || rev == "" || rev == Applied {
		return primary
	}
	fallback := c.save(ctx, rev)
	if fallback == nil || interrupted(ctx, fallback) {
		return fallback
	}
	// The one that tells more about what has to be done goes first.
	if errors.Is(primary, ErrNotFound) || errors.Is(fallback, ErrUnauthenticated) && !errors.Is(primary, ErrUnauthenticated) {
		primary, fallback = fallback, primary
	}
	e, ok := errors.AsType[*Error](primary)
	if !ok {
		return primary
	}
	both := *e
	both.reason = strings.TrimPrefix(both.reason+"; and "+fallback.Error(), "; ")
	return &both
}

func (c *Client) save(ctx context.Context, rev Revision) error {
	_, err := c.do(ctx, call{op: "save configuration", method: http.MethodPatch, path: revisionPath(rev), body: answered("save"), unread: true})
	return err
}

// DiscardRevision removes a revision that was not applied.
func (c *Client) DiscardRevision(ctx context.Context, rev Revision) error {
	_, err := c.do(ctx, call{op: "discard revision", method: http.MethodDelete, path: revisionPath(rev), unread: true})
	return err
}
