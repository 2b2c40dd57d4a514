// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A note is for the history alone, whatever the state and the epochs.
func TestNotesChangeNothing(t *testing.T) {
	for _, s := range []State{StateQueued, StateRunning, StateCancellationRequested, StateCompleted, StateTerminated} {
		before := inState(KindLeaf, s)
		for _, epoch := range []uint64{0, before.Epoch, before.Epoch + 9} {
			after, c, err := Fold(before, Event{Kind: EventNote, ID: before.ID, Epoch: epoch, N: 99, State: StateFailed, Description: "x", At: at(90)})
			require.NoError(t, err)
			require.Equal(t, Change{Ignored: ReasonNote}, c)
			require.Equal(t, before, after)
		}
	}
	wire, err := MarshalEvent(Event{Kind: EventNote, ID: testID(3), Description: "x", At: at(1)})
	require.NoError(t, err)
	back, err := UnmarshalEvent(wire)
	require.NoError(t, err)
	require.Equal(t, EventNote, back.Kind)
	require.Equal(t, "note", back.Kind.String())
}
