// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestD8CompletedJobsHaveNoFailure: whatever a worker says beside it, and whatever
// came before, a job that completed has no failure. Clients take any error message
// for one.
func TestD8CompletedJobsHaveNoFailure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := genHistory(t, NewLeaf(leafSpec()))
		for i := range h.events {
			if h.events[i].Kind == EventFinished && rapid.Bool().Draw(t, "failure all the same") {
				h.events[i].State, h.events[i].Failure = StateCompleted, NewFailure(FailureTaskException, "no problem")
			}
		}
		r := foldAll(t, h.record, genArrival(t, h))
		require.Equal(t, r.State.Terminal() && r.State != StateCompleted, r.Failure != nil, "%s: %+v", r.State, r.Failure)

		counts := Counts{Completed: rapid.Uint32Range(1, 5).Draw(t, "children")}
		state, _, failure := Aggregate(counts, counts.Completed, true, CancelNone, h.record.Type.Wording())
		require.Equal(t, StateCompleted, state)
		require.Nil(t, failure)
	})
}
