// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/test/cluster"
)

// reportLimit is how long reading all of the state may take.
const reportLimit = 2 * time.Minute

// report checks all invariants and prints them with their numbers.
func (cr *crash) report(ctx context.Context) {
	t := cr.t
	// A run that took too long is reported as well.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportLimit)
	defer cancel()
	snapshot, err := cr.c.Snapshot(ctx)
	require.NoError(t, err)
	events, err := cr.c.PublicEvents(ctx)
	require.NoError(t, err)
	ledger := cluster.Judge(cr.c.Writes())
	ends := map[string]int{}
	unknown, reclaimed, abandoned := 0, 0, 0
	// before is how the job before ended on a node.
	before := map[string]job.Record{}
	for _, a := range cr.answers {
		id, err := job.ParseID(a.job)
		require.NoError(t, err)
		r := snapshot.Records[id]
		if r.Epoch > 1 {
			reclaimed++
		}
		ends[end(r)]++
		if outcomeUnknown(r) {
			unknown++
		}
		if givenUp(r) {
			abandoned++
		}
		cr.judge(a, r, before[a.node], ledger)
		before[a.node] = r
	}
	for _, v := range snapshot.Violations() {
		cr.violated("%s", v)
	}
	for _, v := range cluster.JudgeEvents(events, snapshot.Records) {
		cr.violated("public events: %s", v)
	}
	open := len(snapshot.Open())
	t.Logf("seed=%d brokers=%d updates=%d in %s; chaos: %s", *seed, cr.brokers, len(cr.answers), time.Since(cr.began).Round(time.Second), cr.chaos)
	t.Logf("jobs ended as: %s", tell(ends))
	t.Logf("calls repeated=%d jobs with more than one owner=%d outcome unknown=%d given up=%d device writes=%d uploads taken=%d public events=%d",
		cr.retries.Load(), reclaimed, unknown, abandoned, ledger.Writes, total(ledger.Taken), len(events))
	t.Logf("STALE WRITES=%d OVERLAPS=%d OPEN JOBS=%d VIOLATIONS=%d (records=%d capacity=%d commands left=%d)",
		len(ledger.Stale), len(ledger.Overlaps), open, len(cr.violations), len(snapshot.Records), snapshot.Capacity, snapshot.Commands)
	for _, r := range snapshot.Open() {
		t.Logf("open: %s on %s is %s under epoch %d: %s", r.ID, r.NodeID, r.State, r.Epoch, r.Description)
	}
	require.Empty(t, ledger.Stale)
	require.Empty(t, ledger.Overlaps)
	require.Zero(t, open)
	require.Empty(t, cr.violations)
	require.GreaterOrEqual(t, len(cr.answers), cr.n)
	require.LessOrEqual(t, unknown+abandoned, cr.n/2, "too many jobs end without knowing how for this run to tell anything")
}

// judge compares what a caller was told with the record, the device and the log of the device. Before is the record of
// the job before on the same node.
func (cr *crash) judge(a answer, r, before job.Record, l cluster.Ledger) {
	if a.status == nil {
		return // told already
	}
	told := fmt.Sprintf("job %s on %s (%s, %q)", a.job, a.node, r.State, a.status.GetErrorMessage())
	if int32(a.status.GetExecutionState()) != r.State.Execution() {
		cr.violated("%s: the caller was told %s", told, a.status.GetExecutionState())
	}
	faulty := cr.rack.Device(a.node).Knobs().TaskEnd != nil
	switch {
	case r.State == job.StateCompleted && faulty:
		cr.violated("%s: completed on a device that refuses every image", told)
	case r.State == job.StateCompleted:
		if a.installed != a.version {
			cr.violated("%s: version %s is installed, not %s", told, a.installed, a.version)
		}
		if a.status.GetErrorMessage() != "" {
			cr.violated("%s: completed with an error message", told)
		}
	case outcomeUnknown(r), givenUp(r):
	case failedWith(r, job.FailureUpdateAlreadyRunning) && (outcomeUnknown(before) || givenUp(before)):
		// Its predecessor was right not to know: the device is still at work for it.
	case faulty && failedWith(r, job.FailureTaskException):
	default:
		cr.violated("%s: ended as %s", told, end(r))
	}
	want := 1
	sent := r.State == job.StateCompleted || failedWith(r, job.FailureTaskException)
	if taken := l.Taken[a.job]; taken > want || taken < want && sent {
		cr.violated("%s: the device took %d uploads", told, taken)
	}
	if l.Answered[a.job] > want {
		cr.violated("%s: the device answered %d uploads", told, l.Answered[a.job])
	}
}

func failedWith(r job.Record, code job.FailureCode) bool {
	return r.State == job.StateFailed && r.Failure != nil && r.Failure.FailureCode == code
}

func outcomeUnknown(r job.Record) bool { return failedWith(r, job.FailureOutcomeUnknown) }

// givenUp tells jobs over which owner after owner died before it got anywhere.
func givenUp(r job.Record) bool {
	return failedWith(r, job.FailureAbandoned) && r.Attempt > agent.DefaultMaxStuck
}

// end names how a job ended.
func end(r job.Record) string {
	if r.Failure == nil {
		return r.State.String()
	}
	return r.State.String() + "/" + string(r.Failure.FailureCode)
}

func tell(counts map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, counts[what]))
	}
	return strings.Join(parts, ", ")
}

func total(counts map[string]int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
