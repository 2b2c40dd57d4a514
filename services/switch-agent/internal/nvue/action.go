// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Action is work of the switch itself, begun with a POST. The functions of this
// package that return one say which there are.
type Action struct {
	what    string
	path    string
	verb    string
	params  any
	secrets []secret.Value
	// named says that the answer has to name the action.
	named bool
}

// String names the action; it shows no values.
func (a Action) String() string { return a.what }

// GoString names the action for %#v.
func (a Action) GoString() string { return a.what }

// ActionID names a running action. Switches may forget it, at a reboot for
// certain.
type ActionID string

// StartAction begins an action. The id is empty when the switch gave none, which
// means that the action is done; an action that has to have one fails with
// ErrBadResponse instead.
func (c *Client) StartAction(ctx context.Context, a Action) (ActionID, error) {
	start := struct {
		State      string `json:"state"`
		Parameters any    `json:"parameters,omitempty"`
	}{"start", a.params}
	r := call{op: a.what, method: http.MethodPost, path: a.path, body: map[string]any{"@" + a.verb: start}, secrets: a.secrets}
	raw, err := c.do(ctx, r)
	if err != nil {
		return "", err
	}
	id := actionID(raw)
	if id == "" && a.named {
		return "", &Error{Op: r.op, Method: r.method, Path: r.path, Code: ErrBadResponse, Sent: true, reason: "the answer names no action"}
	}
	return id, nil
}

// actionID knows all forms in which NVUE names an action.
func actionID(raw json.RawMessage) ActionID {
	if id, ok := scalar(raw); ok {
		return ActionID(strings.TrimSpace(id))
	}
	d := asDocument(raw)
	if id := d.first("action_id", "id", "Id", "action-id", "actionId", "job_id", "JobId"); id != "" {
		return ActionID(strings.TrimSpace(id))
	}
	path := strings.TrimRight(d.first("@odata.id", "href", "location"), "/")
	path, _, _ = strings.Cut(path, "?")
	return ActionID(strings.TrimSpace(path[strings.LastIndexByte(path, '/')+1:]))
}

// ActionStatus is one look at an action.
type ActionStatus struct {
	Verdict ActionVerdict
	// State is the switch's own word.
	State string
	// Percent is how far the action is, -1 when the switch does not say.
	Percent int
	// Status and Detail are the texts shown with the state, Issue is what went
	// wrong. Secrets are removed.
	Status string
	Detail string
	Issue  string
}

// Text is the most telling of the texts.
func (s ActionStatus) Text() string {
	for _, text := range []string{s.Issue, s.Detail, s.Status} {
		if text != "" {
			return text
		}
	}
	return ""
}

// LookAtAction reads an action once. An action the switch does not know gives
// both a status with ActionVanished and an error of code ErrActionGone.
func (c *Client) LookAtAction(ctx context.Context, id ActionID, p ActionPolicy) (ActionStatus, error) {
	const op = "read action"
	path := resource("action", string(id))
	raw, err := c.get(ctx, op, path)
	if errors.Is(err, ErrNotFound) {
		return ActionStatus{Verdict: ActionVanished, Percent: -1},
			&Error{Op: op, Method: http.MethodGet, Path: path, Status: http.StatusNotFound, Code: ErrActionGone, Sent: true,
				reason: "the switch does not know the action"}
	}
	if err != nil {
		return ActionStatus{Percent: -1}, err
	}
	s := p.judge(raw)
	s.State, s.Status, s.Detail, s.Issue = c.words(s.State), c.words(s.Status), c.words(s.Detail), c.words(s.Issue)
	return s, nil
}

// ActionWait says how an action is waited for. The zero value takes
// Timing.ActionPoll, Timing.ActionLimit and Retryable.
type ActionWait struct {
	Interval time.Duration
	Limit    time.Duration
	// Retry says which errors are waited out.
	Retry func(error) bool
	// Observe, when set, gets every look.
	Observe func(ActionStatus)
}

// AwaitAction waits for the end of an action. It returns nil for ActionSucceeded
// and ActionHandedOff; a failed action gives ErrActionFailed, one the switch does
// not know ErrActionGone, one that takes too long ErrTimeout. The status is the
// last that was seen.
func (c *Client) AwaitAction(ctx context.Context, id ActionID, p ActionPolicy, w ActionWait) (ActionStatus, error) {
	const op = "wait for action"
	if w.Interval <= 0 {
		w.Interval = c.timing.ActionPoll
	}
	if w.Limit <= 0 {
		w.Limit = c.timing.ActionLimit
	}
	if w.Retry == nil {
		w.Retry = Retryable
	}
	end := time.Now().Add(w.Limit)
	last := ActionStatus{Percent: -1}
	for {
		s, err := c.LookAtAction(ctx, id, p)
		if err == nil || s.Verdict == ActionVanished {
			last = s
		}
		if err == nil && w.Observe != nil {
			w.Observe(s)
		}
		switch {
		case err != nil && (interrupted(ctx, err) || !w.Retry(err)):
			return last, err
		case err == nil && s.Verdict == ActionFailed:
			return s, &Error{Op: op, Code: ErrActionFailed, Issue: s.Text(), reason: "action " + string(id) + " state " + quoted(s.State)}
		case err == nil && s.Verdict != ActionRunning:
			return s, nil
		}
		if time.Now().Add(w.Interval).After(end) {
			return last, &Error{Op: op, Code: ErrTimeout, Issue: last.Text(), cause: err,
				reason: "action " + string(id) + " not done within " + w.Limit.String() + ", last state " + quoted(last.State)}
		}
		if err := sleep(ctx, op, w.Interval); err != nil {
			return last, err
		}
	}
}

// RunAction begins an action and waits for its end by the strict policy. An
// action without id is done.
func (c *Client) RunAction(ctx context.Context, a Action) (ActionStatus, error) {
	id, err := c.StartAction(ctx, a)
	if err != nil {
		return ActionStatus{Percent: -1}, err
	}
	if id == "" {
		return ActionStatus{Verdict: ActionSucceeded, Percent: 100}, nil
	}
	return c.AwaitAction(ctx, id, StrictActions(), ActionWait{})
}
