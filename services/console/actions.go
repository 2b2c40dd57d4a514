// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// action is something an operator can do about a job.
type action struct {
	// Word names it in addresses.
	Word string
	// Label is what its button says, Question what is asked before, Warning what to
	// think of.
	Label, Question, Warning string
	// Danger marks what cannot be taken back.
	Danger bool
	// Reason says that a reason can be given.
	Reason bool
	// Rollout puts its button beside the rollout.
	Rollout bool
	// Notice is told when it was done.
	Notice string

	applies func(*rackbusv1.Job) bool
	do      func(ctx context.Context, c *Console, jobID, reason string) (next string, err error)
}

// cancel returns what asks a job to stop.
func cancel(mode rackbusv1.CancelMode) func(context.Context, *Console, string, string) (string, error) {
	return func(ctx context.Context, c *Console, id, reason string) (string, error) {
		_, err := c.jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{JobId: id, Mode: mode, Reason: reason})
		return id, err
	}
}

func active(j *rackbusv1.Job) bool { return !terminal(j.GetState()) }

// inWaves reports whether a rollout may still start nodes.
func inWaves(j *rackbusv1.Job, states ...rackbusv1.RolloutState) bool {
	return active(j) && j.GetRollout() != nil && slices.Contains(states, j.GetRollout().GetState())
}

// actions are all of them, in the order of their buttons.
func actions() []action {
	const (
		waving  = rackbusv1.RolloutState_ROLLOUT_STATE_RUNNING
		pausing = rackbusv1.RolloutState_ROLLOUT_STATE_PAUSING
		held    = rackbusv1.RolloutState_ROLLOUT_STATE_HELD
	)
	return []action{
		{
			Word: "pause", Label: "Pause rollout", Rollout: true, Reason: true,
			Question: "Hold this rollout before its next wave?",
			Warning:  "Nodes that were started go on. The others wait until somebody resumes the rollout.",
			Notice:   "The rollout is held before its next wave.",
			applies:  func(j *rackbusv1.Job) bool { return inWaves(j, waving, pausing) },
			do: func(ctx context.Context, c *Console, id, reason string) (string, error) {
				_, err := c.jobs.PauseRollout(ctx, &rackbusv1.PauseRolloutRequest{JobId: id, Reason: reason})
				return id, err
			},
		},
		{
			Word: "resume", Label: "Resume rollout", Rollout: true,
			Question: "Let this rollout go on with its next wave?",
			Warning:  "The nodes of the next wave start at once.",
			Notice:   "The rollout goes on.",
			applies:  func(j *rackbusv1.Job) bool { return inWaves(j, held, pausing) },
			do: func(ctx context.Context, c *Console, id, _ string) (string, error) {
				_, err := c.jobs.ResumeRollout(ctx, &rackbusv1.ResumeRolloutRequest{JobId: id})
				return id, err
			},
		},
		{
			Word: "abort", Label: "Abort rollout", Rollout: true, Reason: true, Danger: true,
			Question: "Abort this rollout?",
			Warning:  "Nodes that were started go on to their end. All others are cancelled. This cannot be taken back.",
			Notice:   "The rollout is aborted; what was started goes on.",
			applies:  func(j *rackbusv1.Job) bool { return inWaves(j, waving, pausing, held) },
			do: func(ctx context.Context, c *Console, id, reason string) (string, error) {
				_, err := c.jobs.AbortRollout(ctx, &rackbusv1.AbortRolloutRequest{JobId: id, Reason: reason})
				return id, err
			},
		},
		{
			Word: "cancel", Label: "Cancel job", Reason: true,
			Question: "Cancel this job?",
			Warning: "A job that waits ends at once. One that runs stops at its next safe point, which can take a while when " +
				"an image is being written; only then does it read cancelled and is its node free.",
			Notice: "Asked to stop. The job reads cancelled once its worker has stopped.",
			applies: func(j *rackbusv1.Job) bool {
				return active(j) && j.GetState() != rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED
			},
			do: cancel(rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL),
		},
		{
			Word: "terminate", Label: "Terminate job", Reason: true, Danger: true,
			Question: "Terminate this job by force?",
			Warning: "The connection to the device is cut now, also in the middle of a write. The state of the hardware is " +
				"unknown afterwards and needs to be looked at. Cancel is the safe way.",
			Notice: "Asked to stop by force.",
			applies: func(j *rackbusv1.Job) bool {
				return active(j) && j.GetCancel().GetMode() != rackbusv1.CancelMode_CANCEL_MODE_TERMINATE
			},
			do: cancel(rackbusv1.CancelMode_CANCEL_MODE_TERMINATE),
		},
		{
			Word: "diagnose", Label: "Diagnose",
			Question: "Collect diagnostics for this job?",
			Warning: "A job of its own reads logs, sensors and inventory of the node, or of every node of the batch that did " +
				"not complete, and keeps them as evidence. It changes nothing on the hardware.",
			Notice: "The diagnosis has been started.",
			applies: func(j *rackbusv1.Job) bool {
				return terminal(j.GetState()) && j.GetState() != rackbusv1.JobState_JOB_STATE_COMPLETED &&
					!slices.Contains(observing, j.GetType())
			},
			do: func(ctx context.Context, c *Console, id, _ string) (string, error) {
				resp, err := c.jobs.StartNodeDiagnostics(ctx, &rackbusv1.StartNodeDiagnosticsRequest{AboutJobId: id})
				return resp.GetJobId(), err
			},
		},
	}
}

// actionsFor are the actions that make sense for a job as it is.
func actionsFor(j *rackbusv1.Job) []action {
	return slices.DeleteFunc(actions(), func(a action) bool { return !a.applies(j) })
}

func findAction(word string) (action, bool) {
	for _, a := range actions() {
		if a.Word == word {
			return a, true
		}
	}
	return action{}, false
}

// noticeOf is what to tell after an action was done.
func noticeOf(word string) string {
	a, _ := findAction(word)
	return a.Notice
}

// confirmPage asks before something is done.
type confirmPage struct {
	page
	Job    *rackbusv1.Job
	Action action
	Token  string
	// Applies says that the action still makes sense.
	Applies bool
}

// confirm asks. The script of the job's page shows the same form in a dialog.
func (c *Console) confirm(w http.ResponseWriter, r *http.Request, p page) {
	a, ok := findAction(r.PathValue("action"))
	if !ok {
		c.serveMissing(w, r, p)
		return
	}
	if !p.MayOperate() {
		c.fail(w, r, p, status.Errorf(codes.PermissionDenied, "this needs the role operator; yours is %s", p.RoleName()))
		return
	}
	resp, err := c.jobs.GetJob(r.Context(), &rackbusv1.GetJobRequest{JobId: r.PathValue("job")})
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	p.Title, p.Nav = a.Label, navJobs
	c.render(w, r, http.StatusOK, "confirm", confirmPage{
		page: p, Job: resp.GetJob(), Action: a, Token: c.formToken(w, r), Applies: a.applies(resp.GetJob()),
	})
}

// act does what a form asks for. The API decides whether the caller may.
func (c *Console) act(w http.ResponseWriter, r *http.Request, p page) {
	a, ok := findAction(r.PathValue("action"))
	if !ok {
		c.serveMissing(w, r, p)
		return
	}
	if !c.ownForm(r) {
		c.fail(w, r, p, status.Error(codes.PermissionDenied, "the form is too old, or not one of this console; go back and try again"))
		return
	}
	next, err := a.do(r.Context(), c, r.PathValue("job"), r.PostFormValue("reason"))
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	http.Redirect(w, r, "/jobs/"+url.PathEscape(next)+"?done="+a.Word, http.StatusSeeOther)
}

// evidencePage is a fresh link to a bundle.
type evidencePage struct {
	page
	Job      *rackbusv1.Job
	Evidence *rackbusv1.GetEvidenceResponse
	Expires  time.Time
}

// Available says whether there is a bundle.
func (v evidencePage) Available() bool {
	return v.Evidence.GetStatus() == rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE
}

// serveEvidence makes a link whenever it is asked: one lives for some minutes only.
func (c *Console) serveEvidence(w http.ResponseWriter, r *http.Request, p page) {
	id := r.PathValue("job")
	resp, err := c.jobs.GetJob(r.Context(), &rackbusv1.GetJobRequest{JobId: id})
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	evidence, err := c.jobs.GetEvidence(r.Context(), &rackbusv1.GetEvidenceRequest{JobId: id})
	if err != nil {
		c.fail(w, r, p, err)
		return
	}
	p.Title, p.Nav = "Evidence", navJobs
	c.render(w, r, http.StatusOK, "evidence", evidencePage{
		page: p, Job: resp.GetJob(), Evidence: evidence, Expires: timeOf(evidence.GetExpiresAt()),
	})
}
