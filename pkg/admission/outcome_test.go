// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/porttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// A try whose answer was lost is found by what it has stored, and not made twice.
func TestC3LostAnswerIsFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	for name, leaf := range map[string]bool{"leaf": true, "batch": false} {
		t.Run(name, func(t *testing.T) {
			from, to := 0, 3
			if leaf {
				from, to = 10, 11
			}
			req := request(from, to)
			id, err := job.NewFamily(rand.Reader)
			require.NoError(t, err)
			try := func(uncertain bool) *batch {
				b := newBatch(a, &req, id, leaf)
				s := &share{b: b, ctx: t.Context(), nodes: b.candidates, last: true, uncertain: uncertain, done: make(chan error, 1)}
				require.NoError(t, s.submit(t.Context()))
				return b
			}
			first := try(false)
			records := h.capacity()
			for _, uncertain := range []bool{true, false} {
				// Without the doubt the node's own lock gives the earlier try away.
				again := try(uncertain)
				require.Equal(t, first.results, again.results)
				require.Equal(t, first.attached, again.attached)
				require.True(t, again.created)
			}
			require.Equal(t, records, h.capacity())
		})
	}
}

// The broker restarts while an admission is under way; the caller does not notice.
func TestBrokerRestartIsRiddenOut(t *testing.T) {
	t.Parallel()
	dir := brokertest.StoreDir(t)
	port := porttest.Free(t, 1)[0]
	b := brokertest.StartIn(t, dir, port)
	h := &harness{t: t, b: b}
	h.conn = h.connect()
	require.NoError(t, h.conn.Provision(t.Context()))
	var restarted *broker.Broker
	var err error
	done := make(chan struct{})
	a := h.admitter(func(o *Options) {
		o.chunkNodes = 5
		o.BrokerLimit = 20 * time.Second
		o.afterChunk = func(chunk int) {
			if chunk > 0 {
				return
			}
			b.Close()
			go func() {
				defer close(done)
				restarted, err = broker.Start(broker.Options{Name: "test", StoreDir: dir, Host: "127.0.0.1", Port: port})
			}()
		}
	})
	res, aerr := a.Admit(t.Context(), request(0, 20))
	<-done
	require.NoError(t, err)
	t.Cleanup(restarted.Close)
	require.NoError(t, aerr)
	require.Equal(t, 20, res.Admitted())
	parent := h.record(res.JobID)
	require.True(t, parent.Admitted)
	require.EqualValues(t, 20, parent.Total)
	require.EqualValues(t, 21, h.capacity())
}

// When the broker stays away between chunks, the caller learns the parent's id
// and which nodes were reached.
func TestBrokerLostBetweenChunks(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(func(o *Options) {
		o.chunkNodes, o.BrokerLimit, o.AnnounceLimit = 5, 2*time.Second, 10*time.Millisecond
		o.afterChunk = func(chunk int) { h.b.Close() }
	})
	res, err := a.Admit(context.WithoutCancel(t.Context()), request(0, 10))
	require.NoError(t, err)
	require.False(t, res.JobID.IsZero())
	require.Equal(t, 5, res.Admitted())
	require.Contains(t, res.Nodes[9].Refusal.Message, res.JobID.String())
	_, err = a.AdmitLeaf(t.Context(), request(30, 31))
	require.ErrorIs(t, err, bus.ErrUnavailable)
}

// However many wait for a broker that is away, each is told in time.
func TestEveryoneIsToldInTime(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	h := newHarness(t)
	a := h.admitter(func(o *Options) { o.BrokerLimit, o.BrokerPause = limit, 20*time.Millisecond })
	h.b.Close()
	took := make([]time.Duration, 10)
	errs := make([]error, len(took))
	var wg sync.WaitGroup
	for i := range took {
		wg.Go(func() {
			start := time.Now()
			// A node all want keeps their requests apart.
			_, errs[i] = a.AdmitLeaf(t.Context(), request(1, 2))
			took[i] = time.Since(start)
		})
	}
	wg.Wait()
	for i := range took {
		require.ErrorIs(t, errs[i], bus.ErrUnavailable)
		require.Less(t, took[i], 5*limit, "one after another they would take twice that")
	}
}

// The answer of a commit was lost, and by the time its repetition is refused the
// job has ended and its node is free: only the job's own record tells.
func TestLostAnswerOfAJobThatHasEndedIsFound(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	req := request(0, 1)
	first, err := a.AdmitLeaf(t.Context(), req)
	require.NoError(t, err)
	h.seal(first.JobID, time.Now())
	require.Empty(t, h.holder(ref(0)))

	b := newBatch(a, &req, first.JobID, true)
	s := &share{b: b, ctx: t.Context(), nodes: b.candidates, last: true, askedAt: time.Now(), done: make(chan error, 1)}
	again, _ := a.sortOut(t.Context(), []*share{s}, fmt.Errorf("commit: %w (%w)", bus.ErrConflict, bus.ErrOutcomeUnknown), 0, time.Now())
	require.Equal(t, []*share{s}, again)
	require.NoError(t, s.submit(t.Context()))
	require.Equal(t, first.JobID, b.results[0].JobID)
	require.EqualValues(t, 1, h.capacity())
}

// Requests with the same key never share a transaction, in which both would
// expect the key to be absent: the broker would refuse it again and again.
func TestEqualKeysDoNotShareATransaction(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a := h.admitter(nil)
	var waiting []*share
	for i := range 3 {
		req := request(i, i+1)
		if i < 2 {
			req.Idempotency = Idempotency{Caller: "c", RPC: "r", Key: "k", Digest: []byte{byte(i)}}
		}
		b := newBatch(a, &req, job.ID{}, true)
		waiting = append(waiting, &share{b: b, nodes: b.candidates, last: true})
	}
	group, rest := pick(waiting)
	require.Equal(t, []*share{waiting[0], waiting[2]}, group)
	require.Equal(t, []*share{waiting[1]}, rest)
}

// A batch that was cut off, whose first chunk refused a node, is told the same
// when its key is used again: the note about the cut stands for no node.
func TestReplayOfACutOffBatch(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	holder := h.admitter(nil)
	_, err := holder.AdmitLeaf(t.Context(), request(1, 2))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	a := h.admitter(func(o *Options) { o.chunkNodes, o.afterChunk = 4, func(int) { cancel() } })
	req := request(0, 10)
	req.Idempotency = Idempotency{Caller: "c", RPC: "r", Key: "k", Digest: []byte("d")}
	first, err := a.Admit(ctx, req)
	require.NoError(t, err)
	require.Equal(t, 3, first.Admitted())

	// The jobs service closes the admission.
	parent, rev, err := h.conn.Record(t.Context(), first.JobID)
	require.NoError(t, err)
	parent.Admitted = true
	tx := h.conn.Begin()
	tx.ReplaceRecord(&parent, rev)
	tx.PutAdmission(parent.ID, &rackbusv1.AdmissionRecord{V: 1, Refused: []*rackbusv1.RefusedNode{
		{RackId: "r1", Index: parent.Total, Message: "cut off"},
	}})
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)

	again, err := holder.Admit(t.Context(), req)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Len(t, again.Nodes, 10)
	for i := range again.Nodes {
		require.Equal(t, first.Nodes[i].Ref, again.Nodes[i].Ref)
		require.Equal(t, first.Nodes[i].JobID, again.Nodes[i].JobID)
		require.Equal(t, first.Nodes[i].Refusal == nil, again.Nodes[i].Refusal == nil)
	}
}
