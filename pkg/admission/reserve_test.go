// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

var coordinatorNode = node.Ref{RackID: "r1", NodeID: "r1:cold-reboot"}

// sequence asks for a coordinator over the nodes from..to-1 of rack r1.
func sequence(from, to int) Request {
	n := candidate(coordinatorNode)
	n.Family = node.FamilyRack
	req := Request{
		Type: job.TypeColdRebootSequence, RackID: "r1", Nodes: []Node{n},
		Reserve: &Reservation{RackPower: true, Operation: "cold reboot"},
	}
	for i := from; i < to; i++ {
		req.Reserve.Nodes = append(req.Reserve.Nodes, ref(i))
	}
	return req
}

// requireNothingKept checks that a refused sequence has left nothing behind.
func (h *harness) requireNothingKept(records int64, busy ...int) {
	h.t.Helper()
	require.Equal(h.t, records, h.capacity())
	require.Empty(h.t, h.holder(coordinatorNode))
	held := make(map[int]bool)
	for _, i := range busy {
		held[i] = true
	}
	for i := range 10 {
		require.Equal(h.t, held[i], h.holder(ref(i)) != "", "node %d", i)
	}
}

func TestCoordinatorReservesAllOrNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	busy, err := a.AdmitLeaf(t.Context(), request(4, 5))
	require.NoError(t, err)

	_, err = a.AdmitCoordinator(t.Context(), sequence(0, 10))
	refusal := requireRefusal(t, err, job.FailureNodeBusy)
	require.Equal(t, job.BusyText("r1", "n4", busy.JobID), refusal.Message)
	require.Equal(t, busy.JobID, refusal.Holder)
	h.requireNothingKept(1, 4)

	h.seal(busy.JobID, time.Now())
	req := sequence(0, 10)
	req.MinRun = 30 * time.Hour
	res, err := a.AdmitCoordinator(t.Context(), req)
	require.NoError(t, err)
	require.EqualValues(t, 2, h.capacity(), "the nodes are no records")
	rec := h.record(res.JobID)
	require.Equal(t, job.KindCoordinator, rec.Kind)
	require.Len(t, rec.Reserved, 10)
	require.True(t, rec.RackPower)
	for i := range 10 {
		require.Equal(t, res.JobID.String(), h.holder(ref(i)))
	}
	cmd, _, err := h.conn.Command(t.Context(), node.FamilyRack, coordinatorNode)
	require.NoError(t, err)
	require.Equal(t, res.JobID.String(), cmd.GetJobId())
	require.EqualValues(t, 30*3600, cmd.GetRunLimitSeconds())
	_, err = h.conn.TakeRackPower(t.Context(), "r1", &rackbusv1.RackPower{V: 1, Holder: "x"}, time.Minute)
	require.ErrorIs(t, err, bus.ErrConflict, "other power operations are refused")

	// Whoever wants one of the nodes is told the sequence; who may wait, waits.
	leaf := request(7, 8)
	_, err = a.AdmitLeaf(t.Context(), leaf)
	require.Equal(t, res.JobID, requireRefusal(t, err, job.FailureNodeBusy).Holder)
	leaf.OnBusy = OnBusyQueue
	waiting, err := a.AdmitLeaf(t.Context(), leaf)
	require.NoError(t, err)
	require.Equal(t, res.JobID, h.record(waiting.JobID).WaitsFor)
	leaf.OnBusy = OnBusySupersede
	_, err = a.AdmitLeaf(t.Context(), leaf)
	requireRefusal(t, err, job.FailureNodeBusy)
	_, err = a.AdmitCoordinator(t.Context(), sequence(20, 22))
	require.Equal(t, job.RackBusyText("r1"), requireRefusal(t, err, job.FailureNodeBusy).Message)
	second := sequence(20, 22)
	second.Reserve.RackPower = false // an unregistered rack has no guard
	_, err = a.AdmitCoordinator(t.Context(), second)
	require.Equal(t, job.BusyText("r1", coordinatorNode.NodeID, res.JobID), requireRefusal(t, err, job.FailureNodeBusy).Message)
}

func TestCoordinatorIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options func(*Options)
		before  func(h *harness, a *Admitter)
		code    job.FailureCode
		says    string
	}{
		"while the rack's power is changed": {
			before: func(h *harness, _ *Admitter) {
				_, err := h.conn.TakeRackPower(h.t.Context(), "r1", &rackbusv1.RackPower{V: 1, Holder: "x"}, time.Minute)
				require.NoError(h.t, err)
			},
			code: job.FailureNodeBusy, says: "rack r1 is busy with another power operation",
		},
		"while a node is held by a synchronous operation": {
			before: func(h *harness, _ *Admitter) {
				_, err := h.conn.HoldSync(h.t.Context(), ref(2), &rackbusv1.NodeLock{
					V: 1, Operation: "power operation ON", Deadline: timestamppb.New(time.Now().Add(time.Minute)),
				}, bus.Absent, time.Minute)
				require.NoError(h.t, err)
			},
			code: job.FailureNodeBusy, says: "node n2 in rack r1: power operation ON is already in progress",
		},
		"at the limit of tracked jobs": {
			options: func(o *Options) { o.MaxTrackedJobs = 1 },
			before: func(h *harness, a *Admitter) {
				_, err := a.AdmitLeaf(h.t.Context(), request(30, 31))
				require.NoError(h.t, err)
			},
			code: job.FailureCapacity, says: "1 of at most 1",
		},
		"while draining": {
			before: func(_ *harness, a *Admitter) { a.Drain() },
			code:   job.FailureShuttingDown, says: "shutting down",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			a := h.admitter(c.options)
			c.before(h, a)
			records := h.capacity()
			_, err := a.AdmitCoordinator(t.Context(), sequence(0, 10))
			require.Contains(t, requireRefusal(t, err, c.code).Message, c.says)
			h.requireNothingKept(records)
		})
	}
}

func TestUnusableReservations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	foreign, twice, batch := sequence(0, 2), sequence(0, 2), sequence(0, 2)
	foreign.Reserve.Nodes[1].RackID = "r2"
	twice.Reserve.Nodes[1] = twice.Reserve.Nodes[0]
	_, err := a.AdmitCoordinator(t.Context(), request(0, 1))
	require.ErrorIs(t, err, errReservation)
	for _, req := range []Request{foreign, twice} {
		_, err = a.AdmitCoordinator(t.Context(), req)
		require.ErrorIs(t, err, errReservation)
	}
	_, err = a.Admit(t.Context(), batch)
	require.ErrorIs(t, err, errReservation)
	_, err = a.AdmitCoordinator(t.Context(), sequence(0, MaxReserved+1))
	requireRefusal(t, err, job.FailureInvalidArgument)
	require.Zero(t, h.capacity())
}

func TestCoordinatorIsFoundByItsKey(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	req := sequence(0, 3)
	req.Idempotency = Idempotency{Caller: "c", RPC: "ExecuteColdReboot", Key: "k", Digest: []byte{1}}
	first, err := a.AdmitCoordinator(t.Context(), req)
	require.NoError(t, err)
	again, err := a.AdmitCoordinator(t.Context(), req)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.JobID, again.JobID)
	req.Idempotency.Digest = []byte{2}
	_, err = a.AdmitCoordinator(t.Context(), req)
	require.ErrorIs(t, err, ErrKeyReused)
}

// A try whose answer was lost is found, and not taken for somebody else's.
func TestLostAnswerOfACoordinatorIsFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	req := sequence(0, 5)
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	for i, uncertain := range []bool{false, true, false} {
		b := newBatch(a, &req, id, true)
		s := &share{b: b, ctx: t.Context(), nodes: b.candidates, last: true, uncertain: uncertain, done: make(chan error, 1)}
		require.NoError(t, s.submit(t.Context()), "try %d", i)
		require.Equal(t, id, b.results[0].JobID)
	}
	require.EqualValues(t, 1, h.capacity())
}

// Many processes want overlapping sequences and single nodes at once: whoever is
// admitted has everything, and nobody has a part.
func TestRacingReservations(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	const processes = 6
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders := make(map[job.ID][]node.Ref)
	for p := range processes {
		a := h.admitter(nil)
		wg.Go(func() {
			req := sequence(p, p+4)
			req.Nodes[0].Ref.NodeID = fmt.Sprintf("own-%d", p)
			req.Reserve.RackPower = p%2 == 0
			refs := append([]node.Ref{req.Nodes[0].Ref}, req.Reserve.Nodes...)
			res, err := a.AdmitCoordinator(t.Context(), req)
			if p == processes-1 {
				refs = []node.Ref{ref(2)}
				res, err = a.AdmitLeaf(t.Context(), request(2, 3))
			}
			var refusal *Refusal
			if errors.As(err, &refusal) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			holders[res.JobID] = refs
		})
	}
	wg.Wait()
	require.NotEmpty(t, holders)
	for id, refs := range holders {
		for _, r := range refs {
			require.Equal(t, id.String(), h.holder(r), r)
		}
	}
}
