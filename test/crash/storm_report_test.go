// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// writer finds the job in the signature of a request.
var writer = regexp.MustCompile(`\(job ([0-9a-f-]{36});`)

// writesOf returns the writes of each job.
func writesOf(entries []reqlog.Entry) map[string][]reqlog.Entry {
	out := map[string][]reqlog.Entry{}
	for _, e := range entries {
		if m := writer.FindStringSubmatch(e.UserAgent); m != nil {
			out[m[1]] = append(out[m[1]], e)
		}
	}
	return out
}

// report checks all invariants and prints them with their numbers.
func (s *stopping) report(ctx context.Context) {
	t := s.t
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportLimit)
	defer cancel()
	snapshot, err := s.c.Snapshot(ctx)
	require.NoError(t, err)
	events, err := s.c.PublicEvents(ctx)
	require.NoError(t, err)
	entries := s.c.Writes()
	ledger, writes := cluster.Judge(entries), writesOf(entries)
	ends, behind := map[string]int{}, []string(nil)
	for _, id := range slices.Sorted(maps.Keys(s.jobs)) {
		j := s.jobs[id]
		parsed, err := job.ParseID(id)
		require.NoError(t, err)
		r := snapshot.Records[parsed]
		s.judge(j, r)
		if j.node == "" {
			continue
		}
		ends[end(r)]++
		behind = append(behind, s.behind(j, r, writes[id])...)
		if taken := ledger.Taken[id]; taken > 1 || taken == 0 && r.State == job.StateCompleted {
			s.violated("job %s on %s (%s): the device took %d uploads", id, j.node, end(r), taken)
		}
	}
	s.judgeFailures(snapshot.Records)
	for _, v := range snapshot.Violations() {
		s.violated("%s", v)
	}
	for _, v := range cluster.JudgeEvents(events, snapshot.Records) {
		s.violated("public events: %s", v)
	}
	t.Logf("seed=%d requests to stop=%d, %d more behind the end, in %s; chaos: %s",
		*seed, s.taken.Load(), s.late.Load(), time.Since(s.began).Round(time.Second), s.chaos)
	t.Logf("jobs on nodes ended as: %s", tell(ends))
	t.Logf("WRITES BEHIND THE END=%d STALE WRITES=%d OVERLAPS=%d OPEN JOBS=%d VIOLATIONS=%d (records=%d capacity=%d device writes=%d public events=%d calls repeated=%d)",
		len(behind), len(ledger.Stale), len(ledger.Overlaps), len(snapshot.Open()), len(s.violations),
		len(snapshot.Records), snapshot.Capacity, ledger.Writes, len(events), s.retries.Load())
	for _, r := range snapshot.Open() {
		t.Logf("open: %s on %s is %s under epoch %d: %s", r.ID, r.NodeID, r.State, r.Epoch, r.Description)
	}
	require.Empty(t, behind)
	require.Empty(t, ledger.Stale)
	require.Empty(t, ledger.Overlaps)
	require.Empty(t, snapshot.Open())
	require.Empty(t, s.violations)
	require.GreaterOrEqual(t, s.taken.Load(), int64(s.n))
	for _, want := range []string{"cancelled", "terminated", "completed"} {
		require.NotZero(t, endsAs(ends, want), "no job was %s: the run tells little", want)
	}
}

func endsAs(ends map[string]int, state string) int {
	n := 0
	for what, count := range ends {
		if what == state || len(what) > len(state) && what[:len(state)+1] == state+"/" {
			n += count
		}
	}
	return n
}

// requests returns the modes that were asked of a job, by itself or with its batch.
func (s *stopping) requests(j *stopped) []rackbusv1.CancelMode {
	asked := slices.Clone(j.asked)
	if parent := s.jobs[j.parent]; parent != nil {
		asked = append(asked, parent.asked...)
	}
	return asked
}

// judge compares how a job ended with what was asked of it and with what its caller read.
func (s *stopping) judge(j *stopped, r job.Record) {
	asked := s.requests(j)
	told := fmt.Sprintf("job %s on %q, asked %v, ended as %s %q", j.id, j.node, asked, end(r), r.Description)
	if j.last == nil {
		return // told already
	}
	if state := job.State(j.last.GetState()); state != r.State || !r.State.Terminal() {
		s.violated("%s: the caller read %s", told, state)
	}
	if r.Cancel != nil && (r.Cancel.Note != "storm" || !slices.Contains(asked, rackbusv1.CancelMode(r.Cancel.Mode))) {
		s.violated("%s: it says it was asked %+v", told, *r.Cancel)
	}
	if j.node == "" {
		return // the sum of its children, which the snapshot judges
	}
	switch r.State {
	case job.StateCancelled:
		if len(asked) == 0 || r.Cancel == nil {
			s.violated("%s: nobody is told to have asked for it", told)
		}
	case job.StateTerminated:
		if !slices.Contains(asked, terminate) || r.Cancel == nil {
			s.violated("%s: nobody is told to have asked for it", told)
		}
	case job.StateCompleted:
		if r.Failure != nil {
			s.violated("%s: completed with a failure", told)
		}
	case job.StateFailed:
	default:
		s.violated("%s: nothing can have ended it so", told)
	}
}

// behind lists the writes of a job that a device saw after the job had ended, and those of a job that never started.
func (s *stopping) behind(j *stopped, r job.Record, writes []reqlog.Entry) []string {
	var out []string
	for _, e := range writes {
		if r.StartedAt.IsZero() || e.Time.After(r.FinishedAt) {
			out = append(out, fmt.Sprintf("%s: %s %s by job %s (%s) at %s, started %s, ended %s",
				e.Device, e.Method, e.Path, j.id, end(r), e.Time.Format(time.StampMicro),
				r.StartedAt.Format(time.StampMicro), r.FinishedAt.Format(time.StampMicro)))
		}
	}
	return out
}

// judgeFailures lets a job fail only for what the storm does: its workers died, or one before it on the node was cut
// and the device may still be at work.
func (s *stopping) judgeFailures(records map[job.ID]job.Record) {
	byNode := map[string][]job.Record{}
	for _, r := range records {
		if r.Kind == job.KindLeaf {
			byNode[r.NodeID] = append(byNode[r.NodeID], r)
		}
	}
	for node, jobs := range byNode {
		slices.SortFunc(jobs, func(a, b job.Record) int { return a.CreatedAt.Compare(b.CreatedAt) })
		cut := false
		for _, r := range jobs {
			lost := outcomeUnknown(r) || givenUp(r)
			if r.State == job.StateFailed && !lost {
				s.t.Logf("failed after a cut=%t: %s on %s: %s %q", cut, r.ID, node, end(r), r.Failure.Message)
				if !cut {
					s.violated("job %s on %s failed by itself: %s %q", r.ID, node, end(r), r.Failure.Message)
				}
			}
			cut = cut || lost || r.State == job.StateTerminated
		}
	}
}
