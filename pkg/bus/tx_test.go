// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func at(nodeID string) node.Ref { return node.Ref{RackID: "rack", NodeID: nodeID} }

func lockFor(id job.ID) *rackbusv1.NodeLock { return &rackbusv1.NodeLock{V: 1, JobId: id.String()} }

func TestTxMakesAllChangesOrNone(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	id, other := newID(t), newID(t)
	rec := leafRecord(id, "n1")
	tx := c.Begin()
	tx.SetCapacity(1, Absent)
	tx.HoldNode(at("n1"), lockFor(id), Absent)
	tx.CreateRecord(&rec)
	done, err := tx.Commit(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, done.Count)

	got, rev, err := c.Record(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, rec, got)
	require.Equal(t, done.At(2), rev)
	lock, err := c.Lock(t.Context(), at("n1"))
	require.NoError(t, err)
	require.Equal(t, done.At(1), lock.Revision)
	require.False(t, lock.Free(time.Now()))

	second := leafRecord(other, "n2")
	tx = c.Begin()
	tx.SetCapacity(2, done.First())
	tx.HoldNode(at("n2"), lockFor(other), Absent)
	tx.HoldNode(at("n1"), lockFor(other), Absent) // it is held
	tx.CreateRecord(&second)
	_, err = tx.Commit(t.Context())
	require.ErrorIs(t, err, ErrConflict)
	require.NotErrorIs(t, err, ErrOutcomeUnknown)
	_, _, err = c.Record(t.Context(), other)
	require.ErrorIs(t, err, ErrNotFound)
	lock, err = c.Lock(t.Context(), at("n2"))
	require.NoError(t, err)
	require.True(t, lock.Free(time.Now()))
	records, _, err := c.Capacity(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(1), records)
}

func TestTxOfTheGreatestSize(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	id := newID(t)
	tx := c.Begin()
	tx.SetCursor(3, 77, Absent)
	for i := 1; i < MaxTxMessages; i++ {
		rec := job.NewChild(id, uint32(i), job.Spec{RackID: "rack", NodeID: "n"})
		tx.CreateRecord(&rec)
	}
	require.Equal(t, MaxTxMessages, tx.Len())
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)
	count, err := c.CountRecords(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(MaxTxMessages-1), count)
	sequence, _, err := c.Cursor(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, uint64(77), sequence)
}

func TestTxWithoutExpectationIsRefused(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	rec := leafRecord(newID(t), "n")
	tx := c.Begin()
	tx.PutRecord(&rec)
	_, err := tx.Commit(t.Context())
	require.Error(t, err)
}

// TestC3LostCommit loses the request or the answer of a commit. Whatever happens,
// the caller learns what is true.
func TestC3LostCommit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		mode cut
		// meanwhile is what another process commits before the first one can ask.
		meanwhile func(c *Conn, first Revision) error
		conflict  bool
	}{
		"the request is lost": {mode: cutRequest},
		"the answer is lost":  {mode: cutAnswer},
		"the answer is lost and another one has moved on": {
			mode: cutAnswer, conflict: true,
			meanwhile: func(c *Conn, _ Revision) error {
				_, rev, err := c.Cursor(c.ctx, 1)
				if err != nil {
					return err
				}
				tx := c.Begin()
				// The same content as the commit whose answer is lost: it must not
				// be taken for it.
				tx.SetCursor(1, 10, rev)
				_, err = tx.Commit(c.ctx)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			direct, b := provisioned(t)
			proxy := startCutter(t, b.URL())
			c := open(t, proxy.url(), func(o *Options) { o.Timing.Request = 1500 * time.Millisecond })
			await(t, "the connection", func() bool { return c.nc.IsConnected() })
			tx := direct.Begin()
			tx.SetCursor(1, 5, Absent)
			first, err := tx.Commit(t.Context())
			require.NoError(t, err)
			other := make(chan error, 1)
			if tc.meanwhile != nil {
				proxy.meanwhile = func() { other <- tc.meanwhile(direct, first.Last) }
			}

			id := newID(t)
			rec := leafRecord(id, "n")
			tx = c.Begin()
			tx.PutRecord(&rec)
			tx.SetCursor(1, 10, first.Last)
			proxy.set(tc.mode)
			got, err := tx.Commit(t.Context())
			_, rev, cerr := direct.Cursor(t.Context(), 1)
			require.NoError(t, cerr)
			if tc.conflict {
				require.ErrorIs(t, err, ErrConflict)
				require.ErrorIs(t, err, ErrOutcomeUnknown, "the first try was committed, which its caller must find out")
				require.NoError(t, <-other)
				return
			}
			require.NoError(t, err)
			require.Equal(t, rev, got.Last)
			require.Equal(t, 2, got.Count)
			_, recRev, err := direct.Record(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, recRev, got.First(), "it was written once")
		})
	}
}

func TestCommitIsUnavailableWithoutBroker(t *testing.T) {
	t.Parallel()
	_, b := provisioned(t)
	proxy := startCutter(t, b.URL())
	c := open(t, proxy.url())
	await(t, "the connection", func() bool { return c.nc.IsConnected() })
	proxy.set(cutAll)
	await(t, "the connection to end", func() bool { return !c.nc.IsConnected() })
	tx := c.Begin()
	tx.SetCursor(1, 5, Absent)
	_, err := tx.Commit(t.Context())
	require.ErrorIs(t, err, ErrUnavailable)
	require.Error(t, c.Ready())
}

func TestSealRecordCancelsTheDeadline(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	id := newID(t)
	rec := leafRecord(id, "n")
	tx := c.Begin()
	tx.CreateRecord(&rec)
	tx.ArmTimer(TimerDeadline, id, time.Now().Add(time.Hour))
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)
	js := rawJetStream(t, b.URL())
	s, err := js.Stream(t.Context(), streamState)
	require.NoError(t, err)
	_, err = s.GetLastMsgForSubject(t.Context(), timerSubject(TimerDeadline, id))
	require.NoError(t, err)

	sealed, _, err := job.Fold(rec, *func() *job.Event {
		e := event(id, job.EventFinished, 1, 1)
		e.State = job.StateCompleted
		return e
	}())
	require.NoError(t, err)
	tx = c.Begin()
	tx.SetCursor(0, 1, Absent)
	tx.SealRecord(&sealed, time.Hour, nil)
	tx.FreeNode(at("n"), id, Absent)
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)
	_, err = s.GetLastMsgForSubject(t.Context(), timerSubject(TimerDeadline, id))
	require.Error(t, err)
	lock, err := c.Lock(t.Context(), at("n"))
	require.NoError(t, err)
	require.True(t, lock.Free(time.Now()))
	require.Equal(t, id.String(), lock.GetLastJobId())
}

func TestGoneHidesTheWholeFamily(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	id := newID(t)
	ended := func(r job.Record) job.Record { r.State = job.StateCompleted; return r }
	parent, child := ended(job.NewParent(job.Spec{ID: id}, 1, true)), ended(job.NewChild(id, 1, job.Spec{NodeID: "n"}))
	tx := c.Begin()
	tx.CreateRecord(&parent)
	tx.CreateRecord(&child)
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)
	tx = c.Begin()
	tx.SetCapacity(0, Absent)
	tx.MarkGone(id)
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)
	for _, member := range []job.ID{id, child.ID} {
		_, _, err := c.Record(t.Context(), member)
		require.ErrorIs(t, err, ErrNotFound)
	}
	count, err := c.CountFamily(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, int64(2), count)
	count, err = c.CountRecords(t.Context())
	require.NoError(t, err)
	require.Zero(t, count, "a recount before the purge agrees with the counter")
	require.NoError(t, c.PurgeFamily(t.Context(), id))
	count, err = c.CountFamily(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, count)
	tx = c.Begin()
	tx.MarkGone(id)
	_, err = tx.Commit(t.Context())
	require.ErrorIs(t, err, ErrConflict, "a family leaves once")
}
