// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// complete ends a child and counts it in its parent the way a fold commit does,
// and returns the parent as it then is.
func (h *harness) complete(id job.ID) job.Record {
	ctx := h.t.Context()
	for {
		child, _, err := h.conn.Record(ctx, id)
		require.NoError(h.t, err)
		child, _, err = job.Fold(child, job.Event{
			Kind: job.EventFinished, ID: id, Epoch: 1, N: 1, State: job.StateCompleted, At: time.Now(),
		})
		require.NoError(h.t, err)
		parent, prev, err := h.conn.Record(ctx, id.Parent())
		require.NoError(h.t, err)
		parent, _ = job.ApplyChild(parent, child, time.Now())
		at := node.Ref{RackID: child.RackID, NodeID: child.NodeID}
		lock, err := h.conn.Lock(ctx, at)
		require.NoError(h.t, err)
		seq, rev, err := h.conn.Cursor(ctx, 0)
		require.NoError(h.t, err)
		tx := h.conn.Begin()
		tx.SealRecord(&child, time.Hour, nil)
		if parent.State.Terminal() {
			tx.SealRecord(&parent, time.Hour, &prev)
		} else {
			tx.ReplaceRecord(&parent, prev)
		}
		tx.FreeNode(at, id, lock.Revision)
		tx.SetCursor(0, seq+1, rev)
		_, err = tx.Commit(ctx)
		if errors.Is(err, bus.ErrConflict) {
			continue // a child was attached meanwhile
		}
		require.NoError(h.t, err)
		return parent
	}
}

// requireCounted requires that the counter tells the records.
func (h *harness) requireCounted() {
	h.t.Helper()
	stored, err := h.conn.CountRecords(h.t.Context())
	require.NoError(h.t, err)
	require.Equal(h.t, stored, h.capacity())
}

func TestAttach(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) { o.chunkNodes = 2 })
	for name, tc := range map[string]struct{ from, ended int }{
		"nothing has ended":      {100, 0},
		"all but one have ended": {200, 2},
	} {
		t.Run(name, func(t *testing.T) {
			first, err := a.Admit(t.Context(), request(tc.from, tc.from+3))
			require.NoError(t, err)
			id := first.JobID
			for i := range tc.ended {
				h.complete(id.Child(uint32(i) + 1))
			}
			// Five nodes in three chunks; the first is held by a child of the
			// batch, which is not mistaken for an own try.
			res, err := a.Attach(t.Context(), id, request(tc.from+2, tc.from+7))
			require.NoError(t, err)
			require.Equal(t, id, res.JobID)
			require.Equal(t, 4, res.Admitted())
			require.Equal(t, job.FailureNodeBusy, res.Nodes[0].Refusal.Code)
			require.Equal(t, id.Child(3), res.Nodes[0].Refusal.Holder)
			for i := uint32(1); i <= 4; i++ {
				require.Equal(t, id.Child(3+i), res.Nodes[i].JobID)
				require.Equal(t, id.Child(3+i).String(), h.holder(res.Nodes[i].Ref))
				require.Equal(t, job.StateQueued, h.record(id.Child(3+i)).State)
			}
			parent := h.record(id)
			require.True(t, parent.Admitted)
			require.Equal(t, job.StateRunning, parent.State)
			require.EqualValues(t, 7, parent.Total)
			require.Equal(t, job.Counts{Queued: uint32(7 - tc.ended), Completed: uint32(tc.ended)}, parent.Counts)
			h.requireCounted()

			for i := uint32(tc.ended) + 1; i <= 7; i++ {
				require.False(t, h.record(id).State.Terminal())
				h.complete(id.Child(i))
			}
			parent = h.record(id)
			require.Equal(t, job.StateCompleted, parent.State)
			require.EqualValues(t, 7, parent.Counts.Completed)
		})
	}
	require.Len(t, h.fetch(14), 14, "every child has its command")
}

func TestAttachIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	admit := func(from, to int) job.ID {
		res, err := a.Admit(t.Context(), request(from, to))
		require.NoError(t, err)
		return res.JobID
	}
	running, ended := admit(1, 2), admit(2, 3)
	h.complete(ended.Child(1))
	reaped := admit(3, 4)
	h.complete(reaped.Child(1))
	_, err := Reap(t.Context(), h.conn, reaped)
	require.NoError(t, err)
	leaf, err := a.AdmitLeaf(t.Context(), request(4, 5))
	require.NoError(t, err)
	unknown, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	stopping := admit(5, 6)
	h.cancel(stopping)

	for name, tc := range map[string]struct {
		parent job.ID
		text   string
	}{
		"no id":      {job.ID{}, job.ParentUnusableText(job.ID{})},
		"unknown":    {unknown, job.ParentUnusableText(unknown)},
		"ended":      {ended, job.ParentUnusableText(ended)},
		"reaped":     {reaped, job.ParentUnusableText(reaped)},
		"child":      {running.Child(1), job.ParentUnusableText(running.Child(1))},
		"leaf":       {leaf.JobID, "not a batch"},
		"cancelling": {stopping, "asked to stop"},
	} {
		t.Run(name, func(t *testing.T) {
			records := h.capacity()
			_, err := a.Attach(t.Context(), tc.parent, request(50, 52))
			require.Contains(t, requireRefusal(t, err, job.FailureParentUnusable).Message, tc.text)
			require.Empty(t, h.holder(ref(50)))
			require.Equal(t, records, h.capacity())
		})
	}
	req := request(50, 51)
	req.Idempotency = Idempotency{Key: "k"}
	_, err = a.Attach(t.Context(), running, req)
	require.ErrorIs(t, err, errKeyOnAttach)
	req = request(50, 51)
	req.Cleanup = []string{"upload"}
	_, err = a.Attach(t.Context(), running, req)
	require.ErrorIs(t, err, errCleanupOnAttach)
	a.Drain()
	_, err = a.Attach(t.Context(), running, request(50, 51))
	requireRefusal(t, err, job.FailureShuttingDown)
}

// cancel notes that a batch was asked to stop.
func (h *harness) cancel(id job.ID) {
	r, rev, err := h.conn.Record(h.t.Context(), id)
	require.NoError(h.t, err)
	r, _, err = job.Fold(r, job.Event{Kind: job.EventCancelRequested, ID: id, At: time.Now(),
		Cancel: &job.Cancel{Mode: job.CancelGraceful, Reason: job.CancelReasonOperator, RequestedAt: time.Now()}})
	require.NoError(h.t, err)
	tx := h.conn.Begin()
	tx.ReplaceRecord(&r, rev)
	_, err = tx.Commit(h.t.Context())
	require.NoError(h.t, err)
}

// The parent ends between two chunks: the nodes that are left get no job.
func TestParentEndsBetweenAttachedChunks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	var id job.ID
	a := h.admitter(func(o *Options) {
		o.chunkNodes = 2
		o.afterChunk = func(chunk int) {
			for i := uint32(1); chunk == 0 && i <= 3; i++ {
				h.complete(id.Child(i))
			}
		}
	})
	first, err := a.Admit(t.Context(), request(0, 1))
	require.NoError(t, err)
	id = first.JobID
	res, err := a.Attach(t.Context(), id, request(1, 4))
	require.NoError(t, err)
	require.Equal(t, 2, res.Admitted())
	require.Equal(t, job.FailureParentUnusable, res.Nodes[2].Refusal.Code)
	require.Equal(t, job.ParentUnusableText(id), res.Nodes[2].Refusal.Message)
	require.Equal(t, job.StateCompleted, h.record(id).State)
	require.Empty(t, h.holder(ref(3)))
	h.requireCounted()
}

// A try whose answer was lost is told from what others have attached meanwhile.
func TestLostAnswerOfAttachIsFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	first, err := a.Admit(t.Context(), request(0, 1))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		nodes   [2]int
		landed  bool
		sibling bool // somebody else took the index of the try
	}{
		"landed":               {[2]int{10, 12}, true, false},
		"not landed":           {[2]int{20, 22}, false, false},
		"overtaken":            {[2]int{30, 32}, false, true},
		"landed and overtaken": {[2]int{40, 42}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(tc.nodes[0], tc.nodes[1])
			before, rev, err := h.conn.Record(t.Context(), first.JobID)
			require.NoError(t, err)
			asked := time.Now()
			try := func(uncertain bool) *batch {
				b := newBatch(a, &req, first.JobID, false)
				b.extends, b.created = true, true
				s := &share{
					b: b, ctx: t.Context(), nodes: b.candidates, last: true, askedAt: asked, done: make(chan error, 1),
					uncertain: uncertain, parent: before, parentRev: rev,
				}
				require.NoError(t, s.submit(t.Context()))
				return b
			}
			var landed *batch
			if tc.landed {
				landed = try(false)
			}
			if tc.sibling {
				other, err := a.Attach(t.Context(), first.JobID, request(tc.nodes[0]+5, tc.nodes[0]+6))
				require.NoError(t, err)
				require.Equal(t, 1, other.Admitted())
			}
			again := try(true)
			require.EqualValues(t, 2, again.attached)
			if tc.landed {
				require.Equal(t, landed.results, again.results)
			}
			for _, n := range again.results {
				require.Nil(t, n.Refusal)
				require.Equal(t, n.JobID.String(), h.holder(n.Ref))
			}
			h.requireCounted()
		})
	}
}

// Two processes attach at random moments while the children of a batch end. Every
// child that was attached is counted, and the parent has not ended without it.
func TestAttachAtRandomMoments(t *testing.T) {
	t.Parallel()
	const rounds, attachers, calls = 6, 2, 8
	h := newHarness(t)
	processes := []*Admitter{h.admitter(nil), h.admitter(nil)}
	attached, refused := 0, 0
	for round := range rounds {
		first := round * 1000
		res, err := processes[0].Admit(t.Context(), request(first, first+2))
		require.NoError(t, err)
		id := res.JobID
		var mu sync.Mutex
		var children []job.ID
		attach := func(a *Admitter, from, to int) error {
			res, err := a.Attach(t.Context(), id, request(from, to))
			mu.Lock()
			defer mu.Unlock()
			if isRefusal(err) {
				refused++
				return nil
			}
			for _, n := range res.Nodes {
				if n.Refusal == nil {
					children = append(children, n.JobID)
				}
			}
			return err
		}
		require.NoError(t, attach(processes[1], first+10, first+11))

		errs := make([]error, attachers)
		var wg sync.WaitGroup
		for p := range attachers {
			wg.Go(func() {
				for call := range calls {
					_ = pause(t.Context(), mathrand.N(4*time.Millisecond))
					from := first + 100*(p+1) + 2*call
					errs[p] = errors.Join(errs[p], attach(processes[p], from, from+1+call%2))
				}
			})
		}
		for parent := h.record(id); !parent.State.Terminal(); {
			for i := range parent.Children.Select(func(s job.State) bool { return !s.Terminal() }) {
				parent = h.complete(id.Child(i))
				break
			}
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))

		parent := h.record(id)
		require.Equal(t, job.StateCompleted, parent.State)
		require.EqualValues(t, 2+len(children), parent.Total)
		require.Equal(t, job.Counts{Completed: parent.Total}, parent.Counts)
		family, err := h.conn.CountFamily(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, parent.Total+1, family)
		seen := make(map[job.ID]bool)
		for _, c := range children {
			require.False(t, seen[c], "one index went to two nodes")
			seen[c] = true
			require.Equal(t, job.StateCompleted, h.record(c).State)
			require.Equal(t, job.StateCompleted, parent.Children.Get(c.Index()))
		}
		attached += len(children)
	}
	h.requireCounted()
	t.Logf("%d children attached, %d requests refused", attached, refused)
}

// Two requests that extend one batch expect the same revision of it, which a
// transaction cannot do twice.
func TestSharesOfOneParentDoNotShareATransaction(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	var waiting []*share
	for i := range 2 {
		req := request(i, i+1)
		b := newBatch(a, &req, id, false)
		b.extends, b.created = true, true
		waiting = append(waiting, &share{b: b, nodes: b.candidates, last: true})
	}
	group, rest := pick(waiting)
	require.Equal(t, waiting[:1], group)
	require.Equal(t, waiting[1:], rest)
}

// Attaching waits for the last chunk of the batch's own admission.
func TestAttachWaitsForTheAdmission(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	other := h.admitter(func(o *Options) { o.BrokerPause = time.Millisecond })
	type outcome struct {
		res Result
		err error
	}
	attached := make(chan outcome, 1)
	a := h.admitter(func(o *Options) {
		o.chunkNodes = 2
		o.afterChunk = func(chunk int) {
			if chunk > 0 {
				return
			}
			id, err := job.ParseID(h.holder(ref(0)))
			require.NoError(t, err)
			go func() {
				res, err := other.Attach(t.Context(), id.Parent(), request(10, 11))
				attached <- outcome{res, err}
			}()
		}
	})
	first, err := a.Admit(t.Context(), request(0, 6))
	require.NoError(t, err)
	require.Equal(t, 6, first.Admitted())
	o := <-attached
	require.NoError(t, o.err)
	require.Equal(t, first.JobID.Child(7), o.res.Nodes[0].JobID)
	require.EqualValues(t, 7, h.record(first.JobID).Total)
}

// A node held by a child that is newer than the round's look at the parent may be
// held by an earlier try of the same request, so the round starts again.
func TestChildNewerThanTheRoundIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	first, err := a.Admit(t.Context(), request(0, 1))
	require.NoError(t, err)
	req := request(0, 1)
	b := newBatch(a, &req, first.JobID, false)
	b.extends, b.created = true, true
	s := &share{b: b, nodes: b.candidates, last: true}
	require.ErrorIs(t, s.decideBusy(t.Context(), &plan{}), errLanded)
	s.parent = h.record(first.JobID)
	var p plan
	require.NoError(t, s.decideBusy(t.Context(), &p))
	require.Equal(t, job.FailureNodeBusy, p.refusal.Code)
}
