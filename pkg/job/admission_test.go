// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewRecords(t *testing.T) {
	zone := time.FixedZone("east", 7200)
	spec := leafSpec()
	spec.CreatedAt, spec.Deadline = time.Now().In(zone), time.Now().In(zone).Add(time.Hour)
	leaf := NewLeaf(spec)
	require.Equal(t, Record{
		ID: spec.ID, Kind: KindLeaf, Type: TypeFirmwareUpdate, Name: "firmware_update.rack-1.node-1.03030303",
		RackID: "rack-1", NodeID: "node-1", Family: "compute", State: StateQueued, Description: "Queued",
		CreatedAt: stamp(spec.CreatedAt), UpdatedAt: stamp(spec.CreatedAt), Deadline: stamp(spec.Deadline), Visible: true,
	}, leaf)
	require.True(t, leaf.CreatedAt.Equal(spec.CreatedAt))
	require.Equal(t, time.UTC, leaf.CreatedAt.Location())
	_, ok := leaf.ParentID()
	require.False(t, ok)

	spec = leafSpec()
	spec.Name = "tuesday window"
	c := NewChild(testID(8), 4, spec)
	require.Equal(t, testID(8).Child(4), c.ID)
	require.Equal(t, "tuesday window", c.Name)
	parent, ok := c.ParentID()
	require.True(t, ok)
	require.Equal(t, testID(8), parent)

	coordinator := NewCoordinator(leafSpec(), []string{"n2", "n3"}, true)
	require.Equal(t, StateQueued, coordinator.State)
	require.Equal(t, KindCoordinator, coordinator.Kind)
	require.Equal(t, []string{"n2", "n3"}, coordinator.Reserved)
	require.True(t, coordinator.RackPower)

	p := NewParent(parentSpec(), 0, false)
	require.Equal(t, StateRunning, p.State)
	require.Equal(t, "firmware_update.rack-1.batch.03030303", p.Name)
	require.Equal(t, "Batch firmware update is taking in its jobs: 0 of 0 done", p.Description)
	require.False(t, p.Admitted)

	chunk := NewParent(parentSpec(), 240, false)
	require.False(t, chunk.Admitted)
	require.Equal(t, Counts{Queued: 240}, chunk.Counts)
	require.Equal(t, StateRunning, chunk.State)

	require.True(t, NewLeaf(Spec{ID: testID(1)}).Deadline.IsZero())
	var nobody Record
	require.False(t, nobody.Exists())
}

func TestParkAndPromote(t *testing.T) {
	spec := leafSpec()
	spec.WaitsFor = testID(7)
	r := NewLeaf(spec)
	require.Equal(t, testID(7), r.WaitsFor)
	require.Equal(t, "Queued behind job "+testID(7).String(), r.Description)
	require.Equal(t, StateQueued, r.State)

	r = Park(r, testID(8), at(3))
	require.Equal(t, testID(8), r.WaitsFor)
	require.Equal(t, at(3), r.UpdatedAt)

	promoted := Promote(r, at(4))
	require.True(t, promoted.WaitsFor.IsZero())
	require.Equal(t, "Queued", promoted.Description)

	claimed, _, err := Fold(r, worker(EventClaimed))
	require.NoError(t, err)
	require.True(t, claimed.WaitsFor.IsZero(), "a claimed job waits for nobody")
}

func TestRefusalTexts(t *testing.T) {
	holder := testID(6)
	for _, text := range []string{
		BusyText("rack-1", "node-2", holder), QueueFullText("rack-1", "node-2", holder, 8),
	} {
		for _, part := range []string{"already in progress", "rack-1", "node-2", holder.String()} {
			require.Contains(t, text, part)
		}
	}
	require.Contains(t, QueueFullText("rack-1", "node-2", holder, 8), "8 more")
	operation := BusyOperationText("rack-1", "node-2", "power off")
	for _, part := range []string{"already in progress", "rack-1", "node-2", "power off"} {
		require.Contains(t, operation, part)
	}
	require.Contains(t, CapacityText(10000, 10001), "10000 of at most 10001")
	require.Contains(t, ShutdownText(), "shutting down")
	require.Contains(t, ParentUnusableText(holder), holder.String())
	require.Contains(t, DuplicateText("rack-1", "node-2"), "node-2 in rack rack-1")
	require.Equal(t, "job task exited before recording a terminal state", AbandonedMessage)
}
