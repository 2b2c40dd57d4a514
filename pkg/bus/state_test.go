// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestSynchronousOperationHoldsANode(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	op := &rackbusv1.NodeLock{V: 1, Operation: "set_power_state", Deadline: timestamppb.New(time.Now().Add(time.Minute))}
	rev, err := c.HoldSync(t.Context(), at("n"), op, Absent, time.Minute)
	require.NoError(t, err)
	_, err = c.HoldSync(t.Context(), at("n"), op, Absent, time.Minute)
	require.ErrorIs(t, err, ErrConflict)
	lock, err := c.Lock(t.Context(), at("n"))
	require.NoError(t, err)
	require.False(t, lock.Free(time.Now()))
	require.True(t, lock.Free(time.Now().Add(2*time.Minute)), "it holds until its deadline")
	require.Equal(t, "set_power_state", lock.Holder())
	require.NoError(t, c.ReleaseSync(t.Context(), at("n"), rev))
	require.NoError(t, c.ReleaseSync(t.Context(), at("n"), rev), "what was taken over is left alone")
	locks, err := c.Locks(t.Context(), []node.Ref{at("never"), at("n")})
	require.NoError(t, err)
	require.Equal(t, Absent, locks[0].Revision)
	require.True(t, locks[1].Free(time.Now()))
	require.NotEqual(t, Absent, locks[1].Revision)
}

func TestRackPowerGuard(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	held, err := c.TakeRackPower(t.Context(), "rack 1", &rackbusv1.RackPower{V: 1, Holder: "a"}, time.Minute)
	require.NoError(t, err)
	_, err = c.TakeRackPower(t.Context(), "rack 1", &rackbusv1.RackPower{V: 1, Holder: "b"}, time.Minute)
	require.ErrorIs(t, err, ErrConflict)
	got, err := c.RackPower(t.Context(), "rack 1")
	require.NoError(t, err)
	require.Equal(t, "a", got.GetHolder())
	require.NoError(t, c.ReleaseRackPower(t.Context(), held))
	require.NoError(t, c.ReleaseRackPower(t.Context(), held), "releasing twice is harmless")
	_, err = c.TakeRackPower(t.Context(), "rack 1", &rackbusv1.RackPower{V: 1, Holder: "b"}, time.Minute)
	require.NoError(t, err)
}

// TestRackPowerGuardInTransactions holds a guard without a deadline, as a job does,
// and releases it together with other changes.
func TestRackPowerGuardInTransactions(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ctx := t.Context()
	for round := range 2 { // the second finds what a release leaves
		guard, err := c.RackGuard(ctx, "rack 1")
		require.NoError(t, err)
		require.True(t, guard.Free(time.Now()))
		r := leafRecord(newID(t), "n")
		tx := c.Begin()
		tx.CreateRecord(&r)
		tx.HoldRack("rack 1", &rackbusv1.RackPower{V: 1, Holder: r.ID.String()}, guard.Revision)
		_, err = tx.Commit(ctx)
		require.NoError(t, err, "round %d", round)
		_, err = c.TakeRackPower(ctx, "rack 1", &rackbusv1.RackPower{V: 1, Holder: "b"}, time.Minute)
		require.ErrorIs(t, err, ErrConflict)

		stale := guard.Revision
		guard, err = c.RackGuard(ctx, "rack 1")
		require.NoError(t, err)
		require.False(t, guard.Free(time.Now().Add(1000*time.Hour)), "without a deadline it is held until it is released")
		require.Equal(t, r.ID.String(), guard.GetHolder())
		for _, expect := range []Revision{stale, guard.Revision} {
			next := leafRecord(newID(t), "n")
			tx := c.Begin()
			tx.CreateRecord(&next)
			tx.FreeRack("rack 1", expect)
			_, err = tx.Commit(ctx)
			require.Equal(t, expect == stale, errors.Is(err, ErrConflict), err)
		}
		_, err = c.RackPower(ctx, "rack 1")
		require.ErrorIs(t, err, ErrNotFound)
	}
	held, err := c.TakeRackPower(ctx, "rack 1", &rackbusv1.RackPower{V: 1, Holder: "b"}, time.Minute)
	require.NoError(t, err, "a synchronous operation gets what a job has released")
	require.NoError(t, c.ReleaseRackPower(ctx, held))
}

// TestManyLargeRecordsAreReadWhole reads more than the broker puts into one answer.
func TestManyLargeRecordsAreReadWhole(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	const records, size = 40, 1 << 20
	require.Greater(t, records*size, 2*multiGetBytes)
	var ids []job.ID
	for i := range records {
		r := leafRecord(newID(t), fmt.Sprint("n", i))
		r.ResultJSON = strings.Repeat("x", size)
		tx := c.Begin()
		tx.CreateRecord(&r)
		_, err := tx.Commit(t.Context())
		require.NoError(t, err)
		ids = append(ids, r.ID)
	}
	found, err := c.Records(t.Context(), append(ids, newID(t)), 0)
	require.NoError(t, err)
	require.Len(t, found, records)
	none, err := c.Records(t.Context(), []job.ID{newID(t)}, 0)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestCommandsAreErasedBySequence(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	put := func(id job.ID, cursor Revision) (command, last Revision) {
		tx := c.Begin()
		tx.PutCommand(&rackbusv1.JobCommand{
			V: 1, JobId: id.String(), Family: "compute", Target: &rackbusv1.NodeTarget{RackId: "rack", NodeId: "n"},
		}, time.Hour)
		tx.SetCursor(0, 1, cursor)
		done, err := tx.Commit(t.Context())
		require.NoError(t, err)
		return done.First(), done.Last
	}
	first, second := newID(t), newID(t)
	old, cursor := put(first, Absent)
	cmd, rev, err := c.Command(t.Context(), node.FamilyCompute, at("n"))
	require.NoError(t, err)
	require.Equal(t, old, rev)
	require.Equal(t, first.String(), cmd.GetJobId())
	require.ErrorIs(t, c.EraseCommand(t.Context(), cursor), ErrNotCommand, "nothing but commands")
	put(second, cursor)
	require.NoError(t, c.EraseCommand(t.Context(), old), "it was replaced already")
	cmd, rev, err = c.Command(t.Context(), node.FamilyCompute, at("n"))
	require.NoError(t, err)
	require.Equal(t, second.String(), cmd.GetJobId(), "the next job's command stays")
	require.NoError(t, c.EraseCommand(t.Context(), rev))
	_, _, err = c.Command(t.Context(), node.FamilyCompute, at("n"))
	require.ErrorIs(t, err, ErrNotFound)
}

// TestCheckpointsChangeByCompareAndSet lets many owners claim many jobs at once:
// of each job one wins, though the writes are grouped.
func TestCheckpointsChangeByCompareAndSet(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	const jobs, owners = 50, 4
	var wins [jobs]atomic.Int32
	var wg sync.WaitGroup
	ids := make([]job.ID, jobs)
	for i := range ids {
		ids[i] = newID(t)
		for o := range owners {
			wg.Go(func() {
				_, err := c.PutCheckpoint(t.Context(), &rackbusv1.JobCheckpoint{
					V: 1, JobId: ids[i].String(), Family: "compute", Owner: fmt.Sprint(o), Epoch: 1,
				}, Absent)
				if err == nil {
					wins[i].Add(1)
				}
			})
		}
	}
	wg.Wait()
	for i := range wins {
		require.Equal(t, int32(1), wins[i].Load())
	}
	cp, rev, err := c.Checkpoint(t.Context(), node.FamilyCompute, ids[0])
	require.NoError(t, err)
	next := proto.CloneOf(cp)
	next.Stage = "upload"
	newer, err := c.PutCheckpoint(t.Context(), next, rev)
	require.NoError(t, err)
	same, err := c.PutCheckpoint(t.Context(), next, rev)
	require.NoError(t, err, "a repetition of the same write is recognised")
	require.Equal(t, newer, same)
	_, err = c.PutCheckpoint(t.Context(), cp, rev)
	require.ErrorIs(t, err, ErrConflict)
	next.Data = make([]byte, MaxCheckpointBytes)
	_, err = c.PutCheckpoint(t.Context(), next, newer)
	require.ErrorIs(t, err, ErrTooLarge)

	life := func() string {
		s, err := c.js.Stream(t.Context(), streamCheckpoints)
		require.NoError(t, err)
		m, err := s.GetLastMsgForSubject(t.Context(), checkpointSubject(node.FamilyCompute, ids[0]))
		require.NoError(t, err)
		return m.Header.Get("Nats-TTL")
	}
	require.Equal(t, fmt.Sprint(int(checkpointTTL.Seconds())), life())
	next.Data, next.Done = nil, true
	_, err = c.PutCheckpoint(t.Context(), next, newer)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(int(doneCheckpointTTL.Seconds())), life(), "what has ended is not kept as long")
}
