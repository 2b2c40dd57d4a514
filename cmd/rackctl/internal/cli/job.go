// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func newJob(p *program) *cobra.Command {
	cmd := group("job", "Look at jobs and steer them",
		newJobList(p), newJobGet(p), newJobWatch(p), newJobCancel(p), newJobEvents(p), newJobEvidence(p),
		newJobPause(p), newJobResume(p), newJobAbort(p))
	cmd.Aliases = []string{"jobs"}
	return cmd
}

// jobArg is a command about one job.
func jobArg(p *program, use, short, long string) *cobra.Command {
	return &cobra.Command{
		Use: use + " JOB_ID", Short: short, Long: long + "\n\n" + exitHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: once(p.completeJobs),
	}
}

// listFlags choose jobs.
type listFlags struct {
	rack, node, name, parent, about string
	states, types                   []string
	since                           *past
	all, active                     bool
	limit                           int
}

func newJobList(p *program) *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List jobs, newest first",
		Long: `List jobs, newest first: those without a parent, unless --all, --parent or --node is
given. -o json prints the jobs of all pages that were read.

` + exitHelp,
		Example: `  rackctl job list --active
  rackctl job list --state failed,timed_out --since 24h -o wide
  rackctl job list --parent 72f5b1f8-2fe2-44b9-af0d-891b00000000`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rack, "rack", "", "only jobs of `RACK`")
	flags.StringVar(&f.node, "node", "", "only jobs of `[RACK/]NODE`")
	flags.StringVar(&f.name, "name", "", "only jobs of this `NAME`")
	flags.StringVar(&f.parent, "parent", "", "the children of `JOB_ID`")
	flags.StringVar(&f.about, "about", "", "the diagnostics of `JOB_ID`")
	flags.StringSliceVar(&f.states, "state", nil, "only jobs in these `STATES`, for example running,failed")
	flags.StringSliceVar(&f.types, "job-type", nil, "only jobs of these `TYPES`, for example firmware_update")
	f.since = addSince(cmd, "only jobs created since so long `AGO`, for example 24h or 7d")
	flags.BoolVar(&f.all, "all", false, "children too")
	flags.BoolVar(&f.active, "active", false, "only jobs that have not ended")
	flags.IntVar(&f.limit, "limit", 100, "at most so many `JOBS`, 0 for all")
	register(cmd, "rack", p.completeRacks)
	register(cmd, "node", p.completeNodes)
	register(cmd, "parent", p.completeJobs)
	register(cmd, "about", p.completeJobs)
	complete(cmd, "state", stateWords())
	requires(cmd, func([]string) error {
		_, err := f.filter(p.env.now())
		return errors.Join(err, checkLimit(f.limit))
	})
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		filter, err := f.filter(p.env.now())
		if err != nil {
			return err
		}
		jobs, more, err := r.s.listJobs(ctx, filter, f.limit)
		if err != nil {
			return err
		}
		t := jobTable(p.env.now(), jobs)
		if more {
			t.notes = append(t.notes, moreNote(f.limit))
		}
		return r.show(&rackbusv1.ListJobsResponse{Jobs: jobs}, t)
	})
}

// checkLimit refuses a number of lines that makes no sense; 0 is all.
func checkLimit(limit int) error {
	if limit < 0 {
		return usagef("--limit %d is less than none; 0 is all", limit)
	}
	return nil
}

// moreNote says that a list was cut.
func moreNote(limit int) string {
	return fmt.Sprintf("There are more; --limit %d shows them.", 2*limit)
}

// stateWords are the states as --state takes them.
func stateWords() []string {
	var out []string
	for n := int32(1); ; n++ {
		name, known := rackbusv1.JobState_name[n]
		if !known {
			return out
		}
		out = append(out, strings.ToLower(strings.TrimPrefix(name, "JOB_STATE_")))
	}
}

func (f *listFlags) filter(now time.Time) (*rackbusv1.JobFilter, error) {
	out := &rackbusv1.JobFilter{
		Types: f.types, RackId: f.rack, Name: f.name, ParentJobId: f.parent, AboutJobId: f.about,
		TopLevelOnly: !f.all && f.parent == "" && f.node == "",
	}
	if rack, node, both := strings.Cut(f.node, "/"); both {
		out.RackId, out.NodeId = rack, node
	} else {
		out.NodeId = f.node
	}
	if from := f.since.before(now); from != nil {
		out.CreatedSince = timestamppb.New(*from)
	}
	if f.active {
		out.States = activeStates
	}
	for _, word := range f.states {
		name := "JOB_STATE_" + strings.ToUpper(strings.NewReplacer("-", "_", " ", "_").Replace(strings.TrimSpace(word)))
		n, known := rackbusv1.JobState_value[name]
		if !known || n == 0 {
			return nil, usagef("unknown state %q; there are %s", word, strings.Join(stateWords(), ", "))
		}
		out.States = append(out.States, rackbusv1.JobState(n))
	}
	return out, nil
}

// listJobs reads pages until there are limit jobs; 0 is all.
func (s *server) listJobs(ctx context.Context, filter *rackbusv1.JobFilter, limit int) (jobs []*rackbusv1.Job, more bool, err error) {
	token := ""
	for {
		size := maxJobPage
		if limit > 0 {
			size = min(size, limit-len(jobs))
		}
		resp, err := s.jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{Filter: filter, PageSize: uint32(size), PageToken: token})
		if err != nil {
			return nil, false, err
		}
		jobs, token = append(jobs, resp.GetJobs()...), resp.GetNextPageToken()
		if token == "" || limit > 0 && len(jobs) >= limit {
			return jobs, token != "", nil
		}
	}
}

func jobTable(now time.Time, jobs []*rackbusv1.Job) *table {
	t := &table{
		columns: columns("JOB", "~NAME", "~TYPE", "~WHERE", "STATE", ">%", "AGE", "+TOOK", "+ATTEMPT", "+AGENT", "WHAT"),
		empty:   "No job matches.",
	}
	for _, j := range jobs {
		t.add(j.GetJobId(), j.GetName(), j.GetType(), place(j.GetRackId(), j.GetNodeId()), stateField(j.GetState()),
			percentOf(j), ago(now, j.GetCreatedAt()), took(now, j), j.GetAttempt(), j.GetAgent(), progressText(j))
	}
	return t
}

func newJobGet(p *program) *cobra.Command {
	cmd := jobArg(p, "get", "Show a job with its stages, children and result", `Show a job with its stages, children, refused nodes and result. Against a server
that only has the published API, it shows what GetJobStatus tells. The exit code
tells whether the job could be read, not how it has ended; job watch does that.`)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.job(ctx, r.args[0])
		if err != nil {
			return err
		}
		return showJob(p, r.out, resp)
	})
}

// showJob writes a job.
func showJob(p *program, out *output, resp *rackbusv1.GetJobResponse) error {
	if out.data() {
		return out.write(p.env.Stdout, resp)
	}
	env, j := p.env, resp.GetJob()
	jobFacts(env, j).render(env.Stdout, true, env.Tables && env.Colours, 0)
	wide := out.form == formWide
	section := func(title string, t *table) {
		if len(t.rows) > 0 {
			fmt.Fprintf(env.Stdout, "\n%s\n", title)
			t.write(env, wide)
		}
	}
	section("Stages", stageTable(env.now(), j))
	section("Children", childTable(env.now(), resp.GetChildren()))
	refused := &table{columns: columns("NODE", "WHY")}
	for _, n := range resp.GetRefusedNodes() {
		refused.add(place(n.GetRackId(), n.GetNodeId()), n.GetMessage())
	}
	section("Refused nodes", refused)
	if d := j.GetNodeDiagnostics(); d != nil {
		section("Diagnostics: "+cell(d.GetFailureSignature()), collectorTable(d))
	}
	if resp.GetTruncated() {
		fmt.Fprintln(env.Stdout, "\nThe server left out children or results to keep the answer small.")
	}
	return nil
}

// jobFacts are the facts about one job, a line for each that is known.
func jobFacts(env *Env, j *rackbusv1.Job) *table {
	t := &table{columns: columns("JOB", j.GetJobId())}
	fact := func(name string, value any) {
		switch v := value.(type) {
		case string:
			if v == "" {
				return
			}
		case field:
			if v.text == "" {
				return
			}
		}
		t.add(name, value)
	}
	fact("Name", j.GetName())
	fact("Type", j.GetType())
	fact("Where", place(j.GetRackId(), j.GetNodeId()))
	fact("State", stateField(j.GetState()))
	if !terminal(j.GetState()) {
		fact("Progress", fmt.Sprintf("%d%%", percentOf(j)))
	}
	fact("What", j.GetStateDescription())
	if j.GetChildrenTotal() > 0 && j.GetChildren() != nil {
		fact("Nodes", countsText(j.GetChildren(), j.GetChildrenTotal()))
	}
	if f := j.GetFailure(); f != nil {
		fact("Failure", field{f.GetFailureCode(), bad})
		fact("Because", f.GetMessage())
		fact("Phase", f.GetPhase())
		if d := f.GetDevice(); d != nil {
			said := d.GetMessage()
			if more := nonEmpty(d.GetSeverity(), d.GetMessageId()); len(more) > 0 {
				said += " (" + strings.Join(more, ", ") + ")"
			}
			fact("Device said", strings.TrimSpace(said))
			fact("Resolution", d.GetResolution())
		}
		if f.GetRetry() != rackbusv1.FailureRetry_FAILURE_RETRY_UNSPECIFIED {
			fact("Try again", strings.ReplaceAll(enumWord(f.GetRetry(), "FAILURE_RETRY_"), "_", " "))
		}
		fact("Advice", f.GetAdvice())
		fact("Runbook", f.GetRunbook())
	}
	fact("Waits for", j.GetWaitsFor())
	fact("Parent", j.GetParentJobId())
	fact("About", j.GetAboutJobId())
	if r := j.GetRollout(); r != nil {
		fact("Rollout", rolloutText(r))
	}
	if c := j.GetCancel(); c != nil {
		fact("Cancel", fmt.Sprintf("%s by %s at %s", enumWord(c.GetMode(), "CANCEL_MODE_"), cell(c.GetRequestedBy()), at(c.GetRequestedAt())))
	}
	if j.GetAttempt() > 1 {
		fact("Attempt", itoa(j.GetAttempt()))
	}
	fact("Agent", j.GetAgent())
	fact("Created", at(j.GetCreatedAt()))
	fact("Started", at(j.GetStartedAt()))
	fact("Finished", at(j.GetFinishedAt()))
	fact("Took", took(env.now(), j))
	if !terminal(j.GetState()) {
		fact("Deadline", at(j.GetDeadline()))
	}
	if d := j.GetNodeDiagnostics(); d != nil {
		fact("Found", d.GetSummary())
		fact("Advice", d.GetAdvice())
		if e := d.GetEvidence(); e != nil {
			fact("Evidence", fmt.Sprintf("%s, %s", cell(e.GetFilename()), bytesWord(e.GetSizeBytes())))
		}
	}
	return t
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(t string) bool { return t == "" })
}

func stageTable(now time.Time, j *rackbusv1.Job) *table {
	t := &table{columns: columns("STAGE", "STATUS", "TOOK", "WHAT")}
	for _, st := range j.GetStages() {
		var look style
		switch st.GetStatus() {
		case rackbusv1.StageStatus_STAGE_STATUS_COMPLETED:
			look = good
		case rackbusv1.StageStatus_STAGE_STATUS_FAILED:
			look = bad
		case rackbusv1.StageStatus_STAGE_STATUS_RUNNING:
			look = busy
		default:
			look = dim
		}
		text := st.GetMessage()
		if text == "" {
			text = st.GetDescription()
		}
		span := took(now, &rackbusv1.Job{StartedAt: st.GetStartedAt(), FinishedAt: st.GetFinishedAt()})
		t.add(st.GetName(), field{enumWord(st.GetStatus(), "STAGE_STATUS_"), look}, span, text)
	}
	return t
}

func childTable(now time.Time, children []*rackbusv1.Job) *table {
	t := &table{columns: columns("NODE", "STATE", ">%", "TOOK", "+JOB", "+ATTEMPT", "+AGENT", "FAILURE", "WHAT")}
	for _, j := range children {
		code := field{text: j.GetFailure().GetFailureCode()}
		if code.text != "" {
			code.style = bad
		}
		t.add(place(j.GetRackId(), j.GetNodeId()), stateField(j.GetState()), percentOf(j), took(now, j), j.GetJobId(), j.GetAttempt(),
			j.GetAgent(), code, progressText(j))
	}
	return t
}

func collectorTable(d *rackbusv1.NodeDiagnostics) *table {
	t := &table{columns: columns("COLLECTOR", "STATUS", "REQUIRED", "TOOK", "WHAT")}
	for _, c := range d.GetCollectors() {
		look := good
		switch c.GetStatus() {
		case rackbusv1.CollectorStatus_COLLECTOR_STATUS_FAILED:
			look = bad
		case rackbusv1.CollectorStatus_COLLECTOR_STATUS_SKIPPED:
			look = dim
		default:
		}
		t.add(c.GetName(), field{enumWord(c.GetStatus(), "COLLECTOR_STATUS_"), look}, okWord(c.GetRequired()), span(c.GetDuration().AsDuration()), c.GetMessage())
	}
	return t
}
