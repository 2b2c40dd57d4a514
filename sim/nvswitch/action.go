// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// action is something that NVUE does in the background, as its readers see it.
type action struct {
	// doc is what it shows now.
	doc object
	// script replaces doc, answer by answer; the last one stays.
	script  []json.RawMessage
	missing bool
}

// outcome is how an action ended.
type outcome struct {
	state  string
	status string
	detail string
	issue  []any
	code   int
}

func (o outcome) doc() object {
	issue := o.issue
	if issue == nil {
		issue = []any{}
	}
	return object{
		"state": o.state, "status": o.status, "detail": o.detail, "issue": issue, "percentage": 100,
		"http-status": cmp.Or(o.code, http.StatusOK),
	}
}

func succeeded() outcome {
	return outcome{state: "action_success", status: "done"}
}

func failedAction(issue string) outcome {
	return outcome{
		state: "action_error", status: "failed", issue: []any{object{"message": issue}}, code: http.StatusBadRequest,
	}
}

// start begins an action; effect runs, with the switch locked, once it has taken its time and tells how it ended.
func (s *Switch) start(c *call, takes time.Duration, effect func(now time.Time, a *action) outcome) reply {
	parameters, _ := json.Marshal(c.parameters) // decoded JSON marshals
	rule, faulty := s.takeAction(c.path, c.verb, string(parameters))
	s.serials++
	id := strconv.Itoa(s.serials)
	a := &action{
		doc:    object{"state": "action_running", "status": "running", "detail": "", "issue": []any{}, "percentage": 10, "http-status": 200},
		script: rule.Script, missing: faulty && rule.Missing,
	}
	s.actions[id] = a
	if wait(rule.Takes) > 0 {
		takes = wait(rule.Takes)
	}
	s.after(c.now, takes, func(now time.Time) {
		if rule.NoEffect {
			a.doc = succeeded().doc()
			return
		}
		a.doc = effect(now, a).doc()
	})
	if rule.NoID {
		return reply{status: http.StatusOK, body: object{}}
	}
	return reply{status: http.StatusCreated, body: id}
}

// listActions shows all actions since the last boot, by their ids. It does not move scripts on.
func listActions(s *Switch, _ *call) reply {
	out := object{}
	for id, a := range s.actions {
		switch {
		case a.missing:
		case len(a.script) > 0:
			out[id] = a.script[0]
		default:
			out[id] = a.doc
		}
	}
	return ok(out)
}

// readAction is GET of an action.
func readAction(s *Switch, c *call) reply {
	a := s.actions[c.r.PathValue("id")]
	if a == nil || a.missing {
		return notFound(c.path)
	}
	if len(a.script) == 0 {
		return ok(a.doc)
	}
	next := a.script[0]
	if len(a.script) > 1 {
		a.script = a.script[1:]
	}
	return ok(next)
}
