// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Period is the time that a run is about.
type Period struct {
	// Since is the time from which on log entries matter.
	Since time.Time
	// Job is when the failed job worked; its zero value is for none.
	Job Span
	// Ours are the times in which the failed job itself switched the power of the
	// node, in order.
	Ours []Span
}

// Span is a stretch of time, with both ends.
type Span struct{ From, To time.Time }

// margin is how far from a span a device may date what belongs to it: clocks are not
// alike to the second, and a controller writes down what it finds when it is up again.
const margin = time.Minute

// near reports whether a time lies within the span, or beside it.
func (s Span) near(at time.Time) bool {
	return !at.Before(s.From.Add(-margin)) && !at.After(s.To.Add(margin))
}

// How long before a failed job, and before a run that looks into no job, log entries
// still say something about it.
const (
	windowBeforeJob = time.Hour
	windowBeforeRun = 24 * time.Hour
)

// forcedSpan is how long a change that was forced beside a job takes at most: its
// history tells only when it was asked for.
const forcedSpan = 10 * time.Minute

// PeriodOf returns the time that an order is about, for a run that begins now.
func PeriodOf(order *rackbusv1.NodeDiagnosis, now time.Time) Period {
	p := Period{Since: now.Add(-windowBeforeRun)}
	first := time.Time{}
	for _, entry := range order.GetHistory() {
		at := timeOf(entry.GetAt())
		first = earlier(first, at)
		if at.After(p.Job.To) {
			p.Job.To = at
		}
	}
	// Before it began to work a job may have waited for a day.
	if p.Job.From = timeOf(order.GetStartedAt()); !p.Job.From.IsZero() {
		first = p.Job.From
	}
	if !first.IsZero() {
		p.Since = first.Add(-windowBeforeJob)
	}
	for _, a := range order.GetPowerActions() {
		p.Ours = append(p.Ours, Span{timeOf(a.GetFrom()), timeOf(a.GetTo())})
	}
	return p
}

// earlier returns the earlier time; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// powerActions are the times in which a job switched the power of its node, as its
// history tells. A stage counts from its first start to the last time it was told of,
// since whoever takes a job over begins its stage anew.
func powerActions(history History) []*rackbusv1.PowerAction {
	type action struct {
		Span
		skipped bool
	}
	stages := map[string]action{}
	var out []*rackbusv1.PowerAction
	add := func(stage string, s Span) {
		out = append(out, &rackbusv1.PowerAction{Stage: stage, From: timestamppb.New(s.From), To: timestamppb.New(s.To)})
	}
	for i := range history.Events {
		e := &history.Events[i]
		// Notes in the history of a job on a node tell of such a change, but for those about its place in the line.
		if e.Kind == job.EventNote && e.Left.IsZero() {
			add("", Span{e.At, e.At.Add(forcedSpan)})
		}
		for _, s := range e.Stages {
			if !s.SwitchesPower || s.StartedAt.IsZero() {
				continue
			}
			end := s.FinishedAt
			if end.IsZero() {
				end = e.At
			}
			a, known := stages[s.Name]
			if !known {
				a.Span = Span{s.StartedAt, end}
			}
			a.From, a.skipped = earlier(a.From, s.StartedAt), s.Status == job.StageSkipped
			if end.After(a.To) {
				a.To = end
			}
			stages[s.Name] = a
		}
	}
	for name, a := range stages {
		if !a.skipped {
			add(name, a.Span)
		}
	}
	slices.SortFunc(out, func(a, b *rackbusv1.PowerAction) int {
		return cmp.Or(a.GetFrom().AsTime().Compare(b.GetFrom().AsTime()), strings.Compare(a.GetStage(), b.GetStage()))
	})
	return out
}

// look is one look of the rules at a node.
type look struct {
	Evidence
	Period
	// ahead is how far the clocks of the device's controllers are ahead of ours. It has
	// one element at least.
	ahead []time.Duration
}

// managersFile is where a survey puts the controllers, with the time by our clock.
const managersFile = "managers.json"

func newLook(e Evidence, p Period) *look {
	l := &look{Evidence: e, Period: p}
	read, ok := moment(walk(e[managersFile], "read_at"))
	if ok {
		for _, v := range walk(e[managersFile], "resources.*.body.DateTime") {
			if at, ok := moment([]any{v}); ok {
				l.ahead = append(l.ahead, at.Sub(read))
			}
		}
	}
	if len(l.ahead) == 0 {
		l.ahead = []time.Duration{0}
	}
	return l
}

// clockUnset is the year before which a device's time is none: a controller without a
// battery begins in 1970 until somebody tells it the time.
const clockUnset = 2000

// moment reads the first of some values as a time.
func moment(values []any) (at time.Time, ok bool) {
	if len(values) == 0 {
		return time.Time{}, false
	}
	text, _ := scalar(values[0])
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

// moments are when something may have been by our clock that a device dates at a time;
// none when that cannot be told. Controllers of one device may go differently, and
// what they log does not say whose time it is.
func (l *look) moments(value any, device bool) []time.Time {
	at, ok := moment([]any{value})
	if !ok {
		return nil
	}
	if !device {
		return []time.Time{at}
	}
	var out []time.Time
	for _, ahead := range l.ahead {
		if ours := at.Add(-ahead); ours.Year() >= clockUnset {
			out = append(out, ours)
		}
	}
	return out
}

// during reports whether one of the times lies where the failed job worked.
func (l *look) during(times []any, device bool) bool {
	return !l.Job.From.IsZero() && slices.ContainsFunc(times, func(v any) bool {
		return slices.ContainsFunc(l.moments(v, device), l.Job.near)
	})
}

// older reports whether all the times there are lie before the period.
func (l *look) older(times []any, device bool) bool {
	for _, v := range times {
		at := l.moments(v, device)
		if len(at) == 0 || slices.ContainsFunc(at, func(at time.Time) bool { return !at.Before(l.Since) }) {
			return false
		}
	}
	return len(times) > 0
}

// ours reports whether all the times there are lie where our job switched the power, or
// may lie there.
func (l *look) ours(times []any, device bool) bool {
	if len(l.Ours) == 0 {
		return false
	}
	within := func(at time.Time) bool {
		return slices.ContainsFunc(l.Ours, func(s Span) bool { return s.near(at) })
	}
	for _, v := range times {
		if at := l.moments(v, device); len(at) > 0 && !slices.ContainsFunc(at, within) {
			return false
		}
	}
	return true
}
