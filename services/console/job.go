// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// eventsShown is how many events a page shows unless it is asked for all.
const eventsShown = 50

// jobPage is the page of one job.
type jobPage struct {
	page
	Job    jobRow
	Parent *rackbusv1.Job
	// Counts are the children by state, for the bar of a batch.
	Counts   []statusCount
	Stages   []stageRow
	Children []jobRow
	// ChildState filters the children; ChildNext is the address of more.
	ChildState            string
	ChildFirst, ChildNext string
	Refused               []*rackbusv1.RefusedNode
	Truncated             bool
	Events                []*rackbusv1.JobHistoryEntry
	// EventsFolded are older events that AllEvents shows, EventsOmitted still older
	// ones that are not shown at all.
	EventsFolded, EventsOmitted int
	AllEvents                   string
	EventsError                 string
	Result                      string
	Actions                     []action
	Rollout                     *rolloutView
	// Bundle says that evidence can be there.
	Bundle    bool
	Diagnoses []*rackbusv1.Job
}

// Announcement is what a screen reader is told when it changes. It counts in tens of a
// hundred, so that it does not speak all the time.
func (v jobPage) Announcement() string {
	if terminal(v.Job.GetState()) {
		return fmt.Sprintf("The job has ended: %s.", stateLabel(v.Job.GetState()))
	}
	return fmt.Sprintf("The job is %s, %d percent.", stateLabel(v.Job.GetState()), v.Job.GetPercent()/10*10)
}

// IsParent says whether the job sums up children.
func (v jobPage) IsParent() bool { return v.Job.GetKind() == rackbusv1.JobKind_JOB_KIND_PARENT }

func (c *Console) serveJob(w http.ResponseWriter, r *http.Request, p page) {
	id, now := r.PathValue("job"), time.Now()
	mark, _ := c.fleet.mark()
	resp, err := c.jobs.GetJob(r.Context(), &rackbusv1.GetJobRequest{JobId: id})
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	j := resp.GetJob()
	view := jobPage{
		page: p, Job: newRow(j, now), Refused: resp.GetRefusedNodes(), Truncated: resp.GetTruncated(),
		Result: indented(j.GetResultJson()), Rollout: newRollout(j),
	}
	stagesUntil := now
	if at := timeOf(j.GetFinishedAt()); !at.IsZero() {
		stagesUntil = at
	}
	view.Stages = stageRows(j.GetStages(), stagesUntil)
	if view.IsParent() {
		view.Counts = childCounts(j.GetChildren(), j.GetChildrenTotal())
		if err := c.children(r, &view, now); err != nil {
			c.fail(w, r, p, err)
			return
		}
	}
	if parent := j.GetParentJobId(); parent != "" {
		// The page is of use without the name of the batch.
		if up, err := c.jobs.GetJob(r.Context(), &rackbusv1.GetJobRequest{JobId: parent}); err == nil {
			view.Parent = up.GetJob()
		}
	}
	view.events(c.histories.read(r.Context(), id))
	if r.URL.Query().Get("events") == "" && len(view.Events) > eventsShown {
		view.EventsFolded = len(view.Events) - eventsShown
		view.Events = view.Events[:eventsShown]
		all := r.URL.Query()
		all.Set("events", "all")
		all.Del("done")
		view.AllEvents = "?" + all.Encode() + "#events-title"
	}
	view.Diagnoses = c.diagnosesOf(r.Context(), j)
	view.Bundle = j.GetNodeDiagnostics().GetEvidence() != nil || len(view.Diagnoses) > 0 ||
		j.GetType() == string(job.TypeNodeDiagnostics) && view.IsParent()
	if p.MayOperate() {
		view.Actions = actionsFor(j)
	}
	view.Title, view.Nav, view.Notice = j.GetName(), navJobs, noticeOf(r.URL.Query().Get("done"))
	view.Live = "/live/jobs/" + url.PathEscape(id) + "?" + url.Values{"since": {mark.String()}}.Encode()
	c.render(w, r, http.StatusOK, "job", view)
}

// children fills in a page of the children of a batch.
func (c *Console) children(r *http.Request, view *jobPage, now time.Time) error {
	q := r.URL.Query()
	states, known := statesOf(q.Get("state"))
	if !known {
		return status.Errorf(codes.InvalidArgument, "there is no state %q", q.Get("state"))
	}
	view.ChildState = q.Get("state")
	id := view.Job.GetJobId()
	list, err := c.jobs.ListJobs(r.Context(), &rackbusv1.ListJobsRequest{
		Filter:   &rackbusv1.JobFilter{ParentJobId: id, States: states},
		PageSize: uint32(c.opts.PageSize), PageToken: q.Get("after"),
	})
	if err != nil {
		return err
	}
	for _, child := range list.GetJobs() {
		view.Children = append(view.Children, newRow(child, now))
	}
	slices.SortStableFunc(view.Children, func(a, b jobRow) int {
		if c := natural(a.GetRackId(), b.GetRackId()); c != 0 {
			return c
		}
		return natural(a.GetNodeId(), b.GetNodeId())
	})
	childBars(view.Children, now)
	address := func(after string) string {
		v := url.Values{}
		if view.ChildState != "" {
			v.Set("state", view.ChildState)
		}
		if after != "" {
			v.Set("after", after)
		}
		return "/jobs/" + url.PathEscape(id) + "?" + v.Encode() + "#children"
	}
	if q.Get("after") != "" {
		view.ChildFirst = address("")
	}
	if next := list.GetNextPageToken(); next != "" {
		view.ChildNext = address(next)
	}
	return nil
}

// ChildStateChoices are the states to filter the children by.
func (v jobPage) ChildStateChoices() []choice { return jobsFilter{State: v.ChildState}.StateChoices() }

// events takes in the history, newest first.
func (v *jobPage) events(events []*rackbusv1.JobHistoryEntry, omitted int, err error) {
	if err != nil {
		v.EventsError = status.Convert(err).Message()
		return
	}
	v.Events, v.EventsOmitted = slices.Clone(events), omitted
	slices.Reverse(v.Events)
}

// diagnosesOf returns the diagnoses of a job that did not complete, newest first.
func (c *Console) diagnosesOf(ctx context.Context, j *rackbusv1.Job) []*rackbusv1.Job {
	if !terminal(j.GetState()) || j.GetState() == rackbusv1.JobState_JOB_STATE_COMPLETED {
		return nil
	}
	resp, err := c.jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{
		Filter: &rackbusv1.JobFilter{AboutJobId: j.GetJobId()}, PageSize: 10,
	})
	if err != nil {
		c.log.InfoContext(ctx, "diagnoses not listed", "job_id", j.GetJobId(), "err", err)
		return nil
	}
	var out []*rackbusv1.Job
	for _, d := range resp.GetJobs() {
		// The parent of a diagnosis finds nothing out by itself, but is all that looks into
		// a batch: its children look into those of the batch.
		batches := j.GetKind() == rackbusv1.JobKind_JOB_KIND_PARENT
		if d.GetAboutJobId() == j.GetJobId() && (d.GetKind() == rackbusv1.JobKind_JOB_KIND_PARENT) == batches {
			out = append(out, d)
		}
	}
	return out
}

// childCounts are the children of a batch in the order of their bar.
func childCounts(n *rackbusv1.JobCounts, total uint32) []statusCount {
	list := []statusCount{
		{StatusOK, "completed", int(n.GetCompleted()), 0},
		{StatusFailed, "failed", int(n.GetFailed()), 0},
		{StatusFailed, "timed out", int(n.GetTimedOut()), 0},
		{"withdrawn", "cancelled", int(n.GetCancelled()), 0},
		{"withdrawn", "terminated", int(n.GetTerminated()), 0},
		{"withdrawn", "superseded", int(n.GetSuperseded()), 0},
		{StatusWorking, "running", int(n.GetRunning()), 0},
		{StatusWaiting, "queued", int(n.GetQueued()), 0},
	}
	before := 0
	for i := range list {
		list[i].Before = before
		before += list[i].Count
	}
	if rest := int(total) - before; rest > 0 {
		list[len(list)-1].Count += rest
	}
	return list
}

// indented makes a result readable; what is no JSON stays as it is.
func indented(text string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		return text
	}
	return b.String()
}

// FailureInfo explains the code of a failure; it is empty for one that is not known.
func (v jobPage) FailureInfo() job.FailureCodeInfo {
	info, _ := job.FailureCode(v.Job.GetFailure().GetFailureCode()).Info()
	return info
}

// rolloutView is a batch that starts in waves.
type rolloutView struct {
	*rackbusv1.Rollout
	Released, Total int
}

func newRollout(j *rackbusv1.Job) *rolloutView {
	r := j.GetRollout()
	if r == nil {
		return nil
	}
	v := &rolloutView{Rollout: r, Total: int(j.GetChildrenTotal())}
	for i := range v.Total {
		if i/8 < len(r.GetReleased()) && r.GetReleased()[i/8]&(1<<(i%8)) != 0 {
			v.Released++
		}
	}
	return v
}

// StateLabel is where the rollout stands, for people.
func (v rolloutView) StateLabel() string {
	switch v.GetState() {
	case rackbusv1.RolloutState_ROLLOUT_STATE_RUNNING:
		return "a wave is under way"
	case rackbusv1.RolloutState_ROLLOUT_STATE_PAUSING:
		return "the next wave follows after a pause"
	case rackbusv1.RolloutState_ROLLOUT_STATE_HELD:
		return "held: waits for somebody to resume it"
	case rackbusv1.RolloutState_ROLLOUT_STATE_STOPPED:
		return "stopped: no further node starts"
	case rackbusv1.RolloutState_ROLLOUT_STATE_RELEASED:
		return "every node has been started"
	default:
		return "unknown"
	}
}

// Size is the size of a wave in words.
func (v rolloutView) Size() string {
	if n := v.GetPlan().GetWavePercent(); n > 0 {
		return fmt.Sprintf("%d %% of the nodes", n)
	}
	if v.GetPlan().GetWaveSize() == 1 {
		return "one node"
	}
	return fmt.Sprintf("%d nodes", v.GetPlan().GetWaveSize())
}

// Stops is when the rollout stops, in words.
func (v rolloutView) Stops() string {
	plan := v.GetPlan()
	switch {
	case plan.MaxFailures != nil && plan.MaxFailurePercent != nil:
		return fmt.Sprintf("after more than %d failures, or more than %d %%", plan.GetMaxFailures(), plan.GetMaxFailurePercent())
	case plan.MaxFailures != nil:
		return fmt.Sprintf("after more than %d failures", plan.GetMaxFailures())
	case plan.MaxFailurePercent != nil:
		return fmt.Sprintf("after more than %d %% failures", plan.GetMaxFailurePercent())
	}
	return "after the first failure"
}

// Spread is how the nodes of a wave are spread, in words; "" without a limit.
func (v rolloutView) Spread() string {
	switch v.GetPlan().GetSpread() {
	case rackbusv1.RolloutSpread_ROLLOUT_SPREAD_ONE_PER_RACK:
		return "at most one per rack"
	case rackbusv1.RolloutSpread_ROLLOUT_SPREAD_ONE_PER_DOMAIN:
		return "at most one per switch domain"
	default:
		return ""
	}
}
