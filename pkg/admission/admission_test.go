// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/bustest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

var long = flag.Bool("long", false, "run the admission race for 200 rounds")

func TestLeafIsOfferedWithItsLock(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	req := request(1, 2)
	req.Name = "weekly"
	res, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	require.True(t, res.JobID.IsTopLevel())
	require.Equal(t, res.JobID, res.Nodes[0].JobID)

	r := h.record(res.JobID)
	require.Equal(t, job.StateQueued, r.State)
	require.Equal(t, "weekly", r.Name)
	require.True(t, r.Visible)
	require.WithinDuration(t, time.Now().Add(time.Hour), r.Deadline, time.Minute)
	require.Equal(t, res.JobID.String(), h.holder(ref(1)))
	require.EqualValues(t, 1, h.capacity())
	cmd := h.fetch(1)[res.JobID.String()]
	require.NotNil(t, cmd)
	require.Equal(t, string(job.TypeFirmwareUpdate), cmd.GetType())
	require.EqualValues(t, 4*3600, cmd.GetRunLimitSeconds())
	require.Empty(t, cmd.GetParentJobId())

	// A second job on the node is refused by name of the first, for registered
	// and other nodes alike.
	_, err = a.AdmitLeaf(t.Context(), request(1, 2))
	refusal := requireRefusal(t, err, job.FailureNodeBusy)
	require.Equal(t, res.JobID, refusal.Holder)
	require.Contains(t, refusal.Message, "already in progress")
	require.Contains(t, refusal.Message, res.JobID.String())
	require.EqualValues(t, 1, h.capacity())
}

func TestBatchKeepsRequestOrder(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	held, err := a.AdmitLeaf(t.Context(), request(2, 3))
	require.NoError(t, err)

	req := request(1, 4)
	req.Nodes = append(req.Nodes, candidate(ref(1)), Node{Ref: ref(9), Refusal: &Refusal{Code: job.FailureInvalidArgument, Message: "no"}},
		candidate(node.Ref{RackID: "r1"}))
	res, err := a.Admit(t.Context(), req)
	require.NoError(t, err)
	require.Len(t, res.Nodes, 6)
	require.Equal(t, res.JobID.Child(1), res.Nodes[0].JobID)
	require.Equal(t, held.JobID, res.Nodes[1].Refusal.Holder)
	require.Equal(t, res.JobID.Child(2), res.Nodes[2].JobID)
	require.Equal(t, job.FailureDuplicateTarget, res.Nodes[3].Refusal.Code)
	require.Equal(t, "no", res.Nodes[4].Refusal.Message)
	require.Equal(t, job.FailureInvalidArgument, res.Nodes[5].Refusal.Code)
	require.Equal(t, 2, res.Admitted())

	parent := h.record(res.JobID)
	require.Equal(t, job.StateRunning, parent.State)
	require.True(t, parent.Admitted)
	require.EqualValues(t, 2, parent.Total)
	require.False(t, h.record(res.JobID.Child(1)).Visible)
	refused, err := h.conn.Admission(t.Context(), res.JobID)
	require.NoError(t, err)
	require.Len(t, refused.GetRefused(), 4)
	require.EqualValues(t, 1, refused.GetRefused()[0].GetIndex())
	require.EqualValues(t, 4, h.capacity())
}

func TestBatchWithoutAnyNodeHasAFailedParent(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) { o.AdmitTimeout = time.Millisecond })
	_, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	req := request(1, 2)
	req.NothingAdmitted, req.Cleanup = "nothing to do here", []string{"cache/a"}
	res, err := a.Admit(t.Context(), req)
	require.NoError(t, err)
	require.Zero(t, res.Admitted())
	parent := h.record(res.JobID)
	require.Equal(t, job.StateFailed, parent.State)
	require.Equal(t, "nothing to do here", parent.Failure.Message)
	require.Equal(t, job.CodeOther, parent.Failure.Code)
	require.False(t, parent.FinishedAt.IsZero())
	require.Equal(t, req.Cleanup, parent.Cleanup)
	// Nothing folds the end of this job, so its cleanup plan is due from the start.
	h.requireTimers(res.JobID, bus.TimerAdmit, bus.TimerCleanup)
}

func TestCleanupPlanIsKeptByTheTopLevelJob(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	batch := request(1, 3)
	batch.Cleanup = []string{"cache/a", "cache/b"}
	res, err := a.Admit(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, batch.Cleanup, h.record(res.JobID).Cleanup)
	require.Empty(t, h.record(res.JobID.Child(1)).Cleanup, "its sibling may still use them")
	leaf := request(3, 4)
	leaf.Cleanup = []string{"cache/c"}
	res, err = a.AdmitLeaf(t.Context(), leaf)
	require.NoError(t, err)
	require.Equal(t, leaf.Cleanup, h.record(res.JobID).Cleanup)

	before := h.capacity()
	for _, dir := range []string{"/etc", "../other", ".", ""} {
		bad := request(4, 5)
		bad.Cleanup = []string{dir}
		_, err := a.Admit(t.Context(), bad)
		require.ErrorIs(t, err, job.ErrInvalidCleanup, dir)
		_, err = a.AdmitLeaf(t.Context(), bad)
		require.ErrorIs(t, err, job.ErrInvalidCleanup, dir)
	}
	require.Equal(t, before, h.capacity())
	require.Empty(t, h.holder(ref(4)))
}

// requireTimers waits for the first timers that fire, which must be those of a job.
func (h *harness) requireTimers(id job.ID, kinds ...bus.TimerKind) {
	h.t.Helper()
	fired := make(chan bus.Timer, len(kinds))
	ctx, stop := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer stop()
	_ = h.conn.HandleTimers(ctx, func(_ context.Context, timer bus.Timer) error {
		fired <- timer
		if len(fired) == len(kinds) {
			stop()
		}
		return nil
	})
	require.Len(h.t, fired, len(kinds))
	var got []bus.TimerKind
	for range kinds {
		timer := <-fired
		require.Equal(h.t, id, timer.ID)
		got = append(got, timer.Kind)
	}
	require.ElementsMatch(h.t, kinds, got)
}

// Eight processes want the same 50 nodes; each node must go to exactly one job.
func TestEveryNodeGoesToOneJob(t *testing.T) {
	t.Parallel()
	const processes, nodes = 8, 50
	rounds := 8
	if *long {
		rounds = 200
	}
	h := newHarness(t)
	var admitters []*Admitter
	for range processes {
		admitters = append(admitters, h.admitter(func(o *Options) {
			o.MaxTrackedJobs = 100_000
			// Whoever loses every race until its limit is told so, and the node may
			// go to nobody. This is about races, not about the speed of the machine.
			o.Limit, o.BrokerLimit = 5*time.Minute, 5*time.Minute
		}))
	}
	var refs []node.Ref
	for i := range nodes {
		refs = append(refs, ref(i))
	}
	for round := range rounds {
		results := make([]Result, processes)
		errs := make([]error, processes)
		var wg sync.WaitGroup
		for p, a := range admitters {
			wg.Go(func() {
				if p%2 == 0 {
					results[p], errs[p] = a.Admit(t.Context(), request(0, nodes))
					return
				}
				// Single admissions of one process race too, and are merged.
				var mu sync.Mutex
				var inner sync.WaitGroup
				for i := range nodes {
					inner.Go(func() {
						res, err := a.AdmitLeaf(t.Context(), request(i, i+1))
						mu.Lock()
						defer mu.Unlock()
						if err == nil {
							results[p].Nodes = append(results[p].Nodes, res.Nodes...)
						} else if !isRefusal(err) {
							errs[p] = err
						}
					})
				}
				inner.Wait()
			})
		}
		wg.Wait()
		owner := make(map[node.Ref]job.ID)
		for p := range processes {
			require.NoError(t, errs[p], "round %d", round)
			for _, n := range results[p].Nodes {
				if n.Refusal != nil {
					require.Equal(t, job.FailureNodeBusy, n.Refusal.Code, n.Refusal.Message)
					continue
				}
				require.NotContains(t, owner, n.Ref, "round %d", round)
				owner[n.Ref] = n.JobID
			}
		}
		require.Len(t, owner, nodes, "round %d", round)
		for r, id := range owner {
			require.Equal(t, id.String(), h.holder(r), "round %d", round)
		}
		h.release(refs)
	}
	stored, err := h.conn.CountRecords(t.Context())
	require.NoError(t, err)
	require.Equal(t, stored, h.capacity(), "the counter tells the records")
}

func TestChunkedBatch(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	_, err := a.AdmitLeaf(t.Context(), request(599, 600))
	require.NoError(t, err)
	res, err := a.Admit(t.Context(), request(0, 600))
	require.NoError(t, err)
	require.Equal(t, 599, res.Admitted())
	parent := h.record(res.JobID)
	require.True(t, parent.Admitted)
	require.EqualValues(t, 599, parent.Total)
	require.EqualValues(t, 599, parent.Counts.Queued)
	for i := range 599 {
		require.Equal(t, res.JobID.Child(uint32(i)+1), res.Nodes[i].JobID)
	}
	require.EqualValues(t, 601, h.capacity())
	refused, err := h.conn.Admission(t.Context(), res.JobID)
	require.NoError(t, err)
	require.Len(t, refused.GetRefused(), 1)
}

// The process dies between chunks of a batch: what is stored is consistent and
// the timer that closes the admission is armed.
func TestDeathBetweenChunks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	ctx, cancel := context.WithCancel(t.Context())
	a := h.admitter(func(o *Options) {
		o.afterChunk = func(chunk int) {
			if chunk == 1 {
				cancel()
			}
		}
	})
	res, err := a.Admit(ctx, request(0, 600))
	require.NoError(t, err, "the caller is told what was reached")
	require.Equal(t, 480, res.Admitted())
	require.Contains(t, res.Nodes[480].Refusal.Message, res.JobID.String())

	parent := h.record(res.JobID)
	require.False(t, parent.Admitted)
	require.EqualValues(t, 480, parent.Total)
	require.EqualValues(t, 480, parent.Counts.Queued)
	require.EqualValues(t, 481, h.capacity())
	stored, err := h.conn.CountFamily(t.Context(), res.JobID)
	require.NoError(t, err)
	require.EqualValues(t, 481, stored)
	require.NotEmpty(t, h.holder(ref(479)))
	require.Empty(t, h.holder(ref(480)))
	raw, err := bustest.Open(h.b.URL())
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	at, err := raw.ArmedTimer(t.Context(), bus.TimerAdmit, res.JobID)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(a.opts.AdmitTimeout), at, a.opts.AdmitTimeout)
}

// A batch that is asked to stop between its chunks takes no further nodes.
func TestCancelBetweenChunks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) {
		o.chunkNodes = 2
		o.afterChunk = func(chunk int) {
			if chunk > 0 {
				return
			}
			ids, err := h.conn.Locks(t.Context(), []node.Ref{ref(0)})
			require.NoError(t, err)
			child, err := job.ParseID(ids[0].GetJobId())
			require.NoError(t, err)
			r, rev, err := h.conn.Record(t.Context(), child.Parent())
			require.NoError(t, err)
			r, _, err = job.Fold(r, job.Event{Kind: job.EventCancelRequested, ID: r.ID, At: time.Now(),
				Cancel: &job.Cancel{Mode: job.CancelGraceful, Reason: job.CancelReasonOperator, RequestedAt: time.Now()}})
			require.NoError(t, err)
			tx := h.conn.Begin()
			tx.ReplaceRecord(&r, rev)
			_, err = tx.Commit(t.Context())
			require.NoError(t, err)
		}
	})
	res, err := a.Admit(t.Context(), request(0, 5))
	require.NoError(t, err)
	require.Equal(t, 2, res.Admitted())
	parent := h.record(res.JobID)
	require.True(t, parent.Admitted)
	require.EqualValues(t, 2, parent.Total)
	require.NotNil(t, parent.Cancel)
	require.Equal(t, job.StateCancellationRequested, parent.State)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a, other := h.admitter(nil), h.admitter(nil)
	req := request(0, 3)
	req.Nodes = append(req.Nodes, Node{Ref: ref(8), Refusal: &Refusal{Message: "bad node"}})
	req.Idempotency = Idempotency{Caller: "c", RPC: "BatchUpdateFirmware", Key: "k1", Digest: []byte("d1")}
	first, err := a.Admit(t.Context(), req)
	require.NoError(t, err)
	require.False(t, first.Replayed)

	again, err := other.Admit(t.Context(), req)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.JobID, again.JobID)
	for i := range first.Nodes {
		require.Equal(t, first.Nodes[i].JobID, again.Nodes[i].JobID)
		if first.Nodes[i].Refusal != nil {
			require.Equal(t, first.Nodes[i].Refusal.Message, again.Nodes[i].Refusal.Message)
		}
	}
	require.EqualValues(t, 4, h.capacity())

	changed := req
	changed.Idempotency.Digest = []byte("d2")
	_, err = a.Admit(t.Context(), changed)
	require.ErrorIs(t, err, ErrKeyReused)

	elsewhere := request(20, 21)
	elsewhere.Idempotency = Idempotency{Caller: "another", RPC: "BatchUpdateFirmware", Key: "k1", Digest: []byte("d3")}
	leaf, err := a.AdmitLeaf(t.Context(), elsewhere)
	require.NoError(t, err)
	leafAgain, err := a.AdmitLeaf(t.Context(), elsewhere)
	require.NoError(t, err)
	require.Equal(t, leaf.JobID, leafAgain.JobID)

	// A draining process still answers repetitions.
	a.Drain()
	_, err = a.Admit(t.Context(), req)
	require.NoError(t, err)
	_, err = a.Admit(t.Context(), request(30, 31))
	requireRefusal(t, err, job.FailureShuttingDown)

	// Once the job is reaped the key is free again.
	h.seal(leaf.JobID, time.Now())
	_, err = Reap(t.Context(), h.conn, leaf.JobID)
	require.NoError(t, err)
	fresh, err := other.AdmitLeaf(t.Context(), elsewhere)
	require.NoError(t, err)
	require.NotEqual(t, leaf.JobID, fresh.JobID)
}

func TestConcurrentRepetitionsCreateOneJob(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a, b := h.admitter(nil), h.admitter(nil)
	req := request(0, 1)
	req.Idempotency = Idempotency{Caller: "c", RPC: "r", Key: "k", Digest: []byte("d")}
	ids := make([]job.ID, 10)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			res, err := []*Admitter{a, b}[i%2].AdmitLeaf(t.Context(), req)
			if err == nil {
				ids[i] = res.JobID
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	require.EqualValues(t, 1, h.capacity())
}

func TestSynchronousOperationIsNamed(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	_, err := h.conn.HoldSync(t.Context(), ref(1), syncLock("power change", time.Minute), bus.Absent, time.Minute)
	require.NoError(t, err)
	req := request(1, 2)
	req.OnBusy = OnBusyQueue
	_, err = a.AdmitLeaf(t.Context(), req)
	require.Contains(t, requireRefusal(t, err, job.FailureNodeBusy).Message, "power change is already in progress")
	refusal, err := a.CheckFree(t.Context(), job.TypeFirmwareUpdate, OnBusyDefault, ref(1))
	require.NoError(t, err)
	require.Equal(t, job.FailureNodeBusy, refusal.Code)

	_, err = h.conn.HoldSync(t.Context(), ref(2), syncLock("power change", -time.Second), bus.Absent, time.Minute)
	require.NoError(t, err)
	_, err = a.AdmitLeaf(t.Context(), request(2, 3))
	require.NoError(t, err, "past its deadline an operation holds nothing")
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) { o.BrokerLimit = 300 * time.Millisecond; o.BrokerPause = 20 * time.Millisecond })
	h.b.Close()
	_, err := a.AdmitLeaf(t.Context(), request(1, 2))
	require.ErrorIs(t, err, bus.ErrUnavailable)
}

func TestDeadlineShortensLimits(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	req := request(1, 2)
	req.Deadline = time.Now().Add(10 * time.Minute)
	res, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	require.WithinDuration(t, req.Deadline, h.record(res.JobID).Deadline, time.Second)
	cmd := h.fetch(1)[res.JobID.String()]
	require.InDelta(t, 600, cmd.GetRunLimitSeconds(), 60)
	require.True(t, req.Deadline.Equal(cmd.GetDeadline().AsTime()), "however long the job waits")
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Options{})
	require.ErrorIs(t, err, ErrInvalidOptions)
	for _, name := range []string{"default", "refuse", "queue", "supersede"} {
		p, ok := ParseOnBusy(name)
		require.True(t, ok)
		require.Equal(t, name, p.String())
	}
	_, ok := ParseOnBusy("force")
	require.False(t, ok)
}

func syncLock(op string, left time.Duration) *rackbusv1.NodeLock {
	return &rackbusv1.NodeLock{V: 1, Operation: op, Deadline: timestampIn(left)}
}
