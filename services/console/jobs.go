// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// choice is one entry of a list to choose from.
type choice struct {
	Value, Label string
	Selected     bool
}

// Groups of states that a list can be filtered by, beside single states.
const (
	groupActive       = "active"
	groupEnded        = "ended"
	groupUnsuccessful = "unsuccessful"
)

// statesOf returns the states that a word stands for.
func statesOf(word string) ([]rackbusv1.JobState, bool) {
	var selects func(rackbusv1.JobState) bool
	switch word {
	case "":
		return nil, true
	case groupActive:
		selects = func(s rackbusv1.JobState) bool { return !terminal(s) }
	case groupEnded:
		selects = terminal
	case groupUnsuccessful:
		selects = func(s rackbusv1.JobState) bool {
			return terminal(s) && s != rackbusv1.JobState_JOB_STATE_COMPLETED
		}
	default:
		selects = func(s rackbusv1.JobState) bool { return stateWord(s) == word }
	}
	var states []rackbusv1.JobState
	for _, s := range allStates() {
		if selects(s) {
			states = append(states, s)
		}
	}
	return states, len(states) > 0
}

// allStates returns the states of existing jobs in their order.
func allStates() []rackbusv1.JobState {
	var states []rackbusv1.JobState
	for n := range rackbusv1.JobState_name {
		if n != 0 {
			states = append(states, rackbusv1.JobState(n))
		}
	}
	slices.Sort(states)
	return states
}

// windows are how far back a list can look.
var windows = [...]struct {
	word, label string
	age         time.Duration
}{
	{"1h", "last hour", time.Hour},
	{"6h", "last 6 hours", 6 * time.Hour},
	{"24h", "last 24 hours", 24 * time.Hour},
	{"7d", "last 7 days", 7 * 24 * time.Hour},
}

// jobsFilter is the filter of a list as its address tells it.
type jobsFilter struct {
	State, Type, Rack, Node, Name, Since string
	// Children lists the jobs of batches, too.
	Children bool
	// After is where the page begins.
	After string
}

func parseJobsFilter(q url.Values) jobsFilter {
	text := func(key string) string { return strings.TrimSpace(q.Get(key)) }
	return jobsFilter{
		State: text("state"), Type: text("type"), Rack: text("rack"), Node: text("node"), Name: text("name"),
		Since: text("since"), Children: q.Get("children") != "", After: q.Get("after"),
	}
}

// message is the filter as the API takes it.
func (f jobsFilter) message(now time.Time) (*rackbusv1.JobFilter, error) {
	states, ok := statesOf(f.State)
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "there is no state %q", f.State)
	}
	m := &rackbusv1.JobFilter{States: states, RackId: f.Rack, NodeId: f.Node, Name: f.Name}
	if f.Type != "" {
		m.Types = []string{f.Type}
	}
	// A node has jobs of its own only, and most of them belong to a batch.
	m.TopLevelOnly = !f.Children && f.Node == "" && f.Name == ""
	if f.Since == "" {
		return m, nil
	}
	for _, w := range windows {
		if w.word == f.Since {
			m.CreatedSince = timestamppb.New(now.Add(-w.age))
			return m, nil
		}
	}
	at, err := time.Parse(time.RFC3339, f.Since)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "since must be one of the choices or a time like 2026-11-30T01:00:00Z")
	}
	m.CreatedSince = timestamppb.New(at)
	return m, nil
}

func (f jobsFilter) query() url.Values {
	q := url.Values{}
	for key, value := range map[string]string{
		"state": f.State, "type": f.Type, "rack": f.Rack, "node": f.Node, "name": f.Name, "since": f.Since, "after": f.After,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if f.Children {
		q.Set("children", "1")
	}
	return q
}

// URL is the address of the list with this filter.
func (f jobsFilter) URL() string {
	if q := f.query(); len(q) > 0 {
		return "/jobs?" + q.Encode()
	}
	return "/jobs"
}

// StateChoices are the states to choose from.
func (f jobsFilter) StateChoices() []choice {
	list := []choice{
		{"", "any", false}, {groupActive, "active", false}, {groupEnded, "ended", false},
		{groupUnsuccessful, "ended without success", false},
	}
	for _, s := range allStates() {
		list = append(list, choice{stateWord(s), stateLabel(s), false})
	}
	return selected(list, f.State)
}

// TypeChoices are the types to choose from.
func (f jobsFilter) TypeChoices() []choice {
	list := []choice{{"", "any", false}}
	for _, info := range job.Types() {
		list = append(list, choice{string(info.Type), info.Noun, false})
	}
	return selected(list, f.Type)
}

// SinceChoices are the windows to choose from.
func (f jobsFilter) SinceChoices() []choice {
	list := []choice{{"", "any time", false}}
	for _, w := range windows {
		list = append(list, choice{w.word, w.label, false})
	}
	if at, err := time.Parse(time.RFC3339, f.Since); err == nil {
		list = append(list, choice{f.Since, "since " + when(at), false})
	}
	return selected(list, f.Since)
}

func selected(list []choice, value string) []choice {
	for i := range list {
		list[i].Selected = list[i].Value == value
	}
	return list
}

// typeLabel is a type of jobs for people.
func typeLabel(t string) string {
	if info, ok := job.Type(t).Info(); ok {
		return info.Noun
	}
	return strings.ReplaceAll(t, "_", " ")
}

// jobRow is one line of a list.
type jobRow struct {
	*rackbusv1.Job
	// Took is how long it ran, or has run so far.
	Took time.Duration
	// Bar is where it lies in the time of its list; nil for none.
	Bar *bar
}

// Known says whether the job has begun, so that Took means something.
func (r jobRow) Known() bool { return r.GetStartedAt() != nil }

func newRow(j *rackbusv1.Job, now time.Time) jobRow {
	r := jobRow{Job: j}
	if started := timeOf(j.GetStartedAt()); !started.IsZero() {
		end := now
		if at := timeOf(j.GetFinishedAt()); !at.IsZero() {
			end = at
		}
		r.Took = max(0, end.Sub(started))
	}
	return r
}

// jobsPage is a page of the list of jobs.
type jobsPage struct {
	page
	Filter jobsFilter
	Rows   []jobRow
	// First and Next are addresses of other pages, empty when there are none.
	First, Next string
	// Racks are the racks to choose from.
	Racks []string
}

func (c *Console) serveJobs(w http.ResponseWriter, r *http.Request, p page) {
	f := parseJobsFilter(r.URL.Query())
	p.Title, p.Nav = "Jobs", navJobs
	now := time.Now()
	mark, _ := c.fleet.mark()
	filter, err := f.message(now)
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	resp, err := c.jobs.ListJobs(r.Context(), &rackbusv1.ListJobsRequest{
		Filter: filter, PageSize: uint32(c.opts.PageSize), PageToken: f.After,
	})
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	view := jobsPage{page: p, Filter: f}
	for _, j := range resp.GetJobs() {
		view.Rows = append(view.Rows, newRow(j, now))
	}
	first := f
	first.After = ""
	if f.After != "" {
		view.First = first.URL()
	}
	if next := resp.GetNextPageToken(); next != "" {
		first.After = next
		view.Next = first.URL()
	}
	if racks, _, err := c.inventory.get(r.Context()); err == nil {
		for _, rack := range racks {
			view.Racks = append(view.Racks, rack.ID)
		}
	}
	view.Live = "/live/jobs?" + url.Values{"since": {mark.String()}}.Encode()
	c.render(w, r, http.StatusOK, "jobs", view)
}
