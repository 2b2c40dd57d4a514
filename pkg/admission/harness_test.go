// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a broker with one connection that plays the fold and the agents.
type harness struct {
	t    *testing.T
	b    *broker.Broker
	conn *bus.Conn
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, b: brokertest.Start(t)}
	h.conn = h.connect()
	require.NoError(t, h.conn.Provision(t.Context()))
	return h
}

func (h *harness) connect() *bus.Conn {
	c, err := bus.Connect(bus.Options{URLs: []string{h.b.URL()}, Name: "test", Role: "api"})
	require.NoError(h.t, err)
	h.t.Cleanup(c.Close)
	return c
}

// admitter is a process of its own, with a connection of its own.
func (h *harness) admitter(change func(*Options)) *Admitter {
	o := Options{Conn: h.connect(), Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&o)
	}
	a, err := New(o)
	require.NoError(h.t, err)
	h.t.Cleanup(a.Close)
	return a
}

func ref(i int) node.Ref { return node.Ref{RackID: "r1", NodeID: fmt.Sprintf("n%d", i)} }

func candidate(r node.Ref) Node {
	return Node{Ref: r, Family: node.FamilyCompute, Command: func(job.ID) (*rackbusv1.JobCommand, error) {
		return &rackbusv1.JobCommand{
			Target:    &rackbusv1.NodeTarget{RackId: r.RackID, NodeId: r.NodeID},
			Operation: &rackbusv1.JobCommand_FirmwareUpdate{FirmwareUpdate: &rackbusv1.FirmwareUpdate{Activate: true}},
		}, nil
	}}
}

func request(from, to int) Request {
	req := Request{Type: job.TypeFirmwareUpdate, RackID: "r1"}
	for i := from; i < to; i++ {
		req.Nodes = append(req.Nodes, candidate(ref(i)))
	}
	return req
}

func (h *harness) record(id job.ID) job.Record {
	r, _, err := h.conn.Record(h.t.Context(), id)
	require.NoError(h.t, err)
	return r
}

func (h *harness) holder(r node.Ref) string {
	l, err := h.conn.Lock(h.t.Context(), r)
	require.NoError(h.t, err)
	return l.GetJobId()
}

func (h *harness) capacity() int64 {
	n, _, err := h.conn.Capacity(h.t.Context())
	require.NoError(h.t, err)
	return n
}

// release frees nodes the way a fold commit does.
func (h *harness) release(refs []node.Ref) {
	ctx := h.t.Context()
	seq, rev, err := h.conn.Cursor(ctx, 0)
	require.NoError(h.t, err)
	locks, err := h.conn.Locks(ctx, refs)
	require.NoError(h.t, err)
	tx := h.conn.Begin()
	tx.SetCursor(0, seq+1, rev)
	for i, l := range locks {
		tx.FreeNode(refs[i], job.ID{}, l.Revision)
	}
	_, err = tx.Commit(ctx)
	require.NoError(h.t, err)
}

// seal ends a leaf job the way a fold commit does, at the given time.
func (h *harness) seal(id job.ID, at time.Time) {
	ctx := h.t.Context()
	r := h.record(id)
	r, _, err := job.Fold(r, job.Event{Kind: job.EventFinished, ID: id, Epoch: 1, N: 1, State: job.StateCompleted, At: at})
	require.NoError(h.t, err)
	seq, rev, err := h.conn.Cursor(ctx, 0)
	require.NoError(h.t, err)
	node := node.Ref{RackID: r.RackID, NodeID: r.NodeID}
	lock, err := h.conn.Lock(ctx, node)
	require.NoError(h.t, err)
	tx := h.conn.Begin()
	tx.SetCursor(0, seq+1, rev)
	tx.SealRecord(&r, time.Hour, nil)
	tx.FreeNode(node, id, lock.Revision)
	_, err = tx.Commit(ctx)
	require.NoError(h.t, err)
}

func requireRefusal(t *testing.T, err error, code job.FailureCode) *Refusal {
	t.Helper()
	var r *Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, code, r.Code)
	require.NotEmpty(t, r.Message)
	return r
}

// fetch takes the offered commands of the compute family.
func (h *harness) fetch(n int) map[string]*rackbusv1.JobCommand {
	q, err := h.conn.Commands(h.t.Context(), node.FamilyCompute)
	require.NoError(h.t, err)
	got := make(map[string]*rackbusv1.JobCommand)
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	for len(got) < n {
		err := q.Fetch(ctx, n-len(got), func(d *bus.Delivery) { got[d.Command.GetJobId()] = d.Command })
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		require.NoError(h.t, err)
	}
	return got
}
