// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// TestForceGoesBesideTheJob changes the power of nodes that jobs hold: the jobs keep
// them, and their histories and the audit say who did it.
func TestForceGoesBesideTheJob(t *testing.T) {
	t.Parallel()
	ca, config := mutualTLS(t)
	h := newHarness(t, func(o *Options) {
		o.TLS, o.Plaintext = config, false
		o.Access = policy(t, access.Settings{Default: access.Operator, Admins: []string{"spiffe://rackbus/root"}})
	})
	h.powerAgents("ON")
	h.dial(clientTLS(t, ca, "nico"))
	h.register(compute("r1", "n0"), compute("r1", "n1"))
	_, children := h.admit("r1", 1)
	holder, ref := children[0], node.Ref{RackID: "r1", NodeID: "n0"}
	forcing := with(t.Context(), metaOnBusy, onBusyForce)
	single := func(ctx context.Context, id string) (*rackmanager.SetPowerStateResponse, string, error) {
		var trailer metadata.MD
		resp, err := h.rm.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{RackId: "r1", NodeId: id, Operation: opOn}, grpc.Trailer(&trailer))
		return resp, first(trailer, metaReason), err
	}
	batch := &rackmanager.BatchSetPowerStateRequest{Nodes: set(compute("r1", "n0"), compute("r1", "n1")), Operation: opOn}

	// An operator may not, and without force a held node is refused to everybody.
	_, _, err := single(forcing, "n0")
	requireCode(t, err, codes.PermissionDenied, `caller "spiffe://rackbus/nico" has the role operator`)
	_, err = h.rm.BatchSetPowerState(forcing, batch)
	requireCode(t, err, codes.PermissionDenied, "needs the role admin")
	h.dial(clientTLS(t, ca, "root"))
	resp, reason, err := single(t.Context(), "n0")
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.Contains(t, reason, holder.String())
	require.Empty(t, h.notes(holder))

	before, err := h.conn.Lock(t.Context(), ref)
	require.NoError(t, err)
	resp, reason, err = single(forcing, "n0")
	require.NoError(t, err)
	requireSuccess(t, resp.GetStatus(), reason)
	answer, err := h.rm.BatchSetPowerState(forcing, batch)
	require.NoError(t, err)
	requireSuccess(t, answer.GetResponse().GetStatus(), answer.GetResponse().GetMessage())
	after, err := h.conn.Lock(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, before.Revision, after.Revision, "the job holds its node as before")
	free, err := h.conn.Lock(t.Context(), node.Ref{RackID: "r1", NodeID: "n1"})
	require.NoError(t, err)
	require.True(t, free.Free(time.Now()), "a node that nobody held was locked and released")

	note := "power operation POWER_OPERATION_ON of node r1/n0 is forced beside this job by spiffe://rackbus/root"
	require.Equal(t, []string{note, note}, h.notes(holder))
	r := h.fold(holder, job.Event{Kind: job.EventNote, Description: note})
	require.Equal(t, job.StateQueued, r.State)
	records := h.audited(&rackbusv1.ListAuditRecordsRequest{JobId: holder.String()})
	require.Len(t, records, 2)
	for _, r := range records {
		require.Equal(t, "OK", r.GetOutcome())
		require.Equal(t, "spiffe://rackbus/root", r.GetIdentity())
		require.Equal(t, holder.String(), r.GetAttributes()[besideJobs])
		require.Equal(t, onBusyForce, r.GetAttributes()["on_busy"])
	}

	// The rack's power guard and operations that are no jobs are not passed by.
	guard, err := h.conn.TakeRackPower(t.Context(), "r1", &rackbusv1.RackPower{V: 1, Operation: "cold reboot"}, time.Minute)
	require.NoError(t, err)
	_, reason, err = single(forcing, "n0")
	require.NoError(t, err)
	require.Equal(t, "rack power operation in progress", reason)
	require.NoError(t, h.conn.ReleaseRackPower(t.Context(), guard))
	_, err = h.conn.HoldSync(t.Context(), node.Ref{RackID: "r1", NodeID: "n1"},
		&rackbusv1.NodeLock{V: 1, Operation: "image push", Deadline: timestamppb.New(time.Now().Add(time.Minute))}, free.Revision, time.Minute)
	require.NoError(t, err)
	_, reason, err = single(forcing, "n1")
	require.NoError(t, err)
	require.Contains(t, reason, "image push")

	// Nothing else can be forced, whoever asks.
	for _, call := range []func() error{
		func() error { _, err := h.rm.ListRacks(forcing, &rackmanager.ListRacksRequest{}); return err },
		func() error {
			_, err := h.rm.UpdateFirmware(forcing, &rackmanager.UpdateFirmwareRequest{})
			return err
		},
		func() error {
			_, err := h.rm.ExecuteColdReboot(forcing, &rackmanager.ExecuteColdRebootRequest{})
			return err
		},
		func() error {
			_, err := h.rm.PushSwitchFirmware(forcing, &rackmanager.PushSwitchFirmwareRequest{})
			return err
		},
	} {
		requireCode(t, call(), codes.InvalidArgument, "force is for SetPowerState and BatchSetPowerState only")
	}
}

// TestForceIsNotBesideAJobThatHasEnded: its node is somebody else's by now, or nobody's.
func TestForceIsNotBesideAJobThatHasEnded(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) { o.Access = access.Open(access.Admin) })
	h.powerAgents("ON")
	h.register(compute("r1", "n0"))
	_, children := h.admit("r1", 1)
	h.fold(children[0], started(), finished(job.StateCompleted))
	ref := node.Ref{RackID: "r1", NodeID: "n0"}
	free, err := h.conn.Lock(t.Context(), ref)
	require.NoError(t, err)
	tx := h.conn.Begin() // as the lock was read before the job ended
	tx.HoldNode(ref, &rackbusv1.NodeLock{V: 1, JobId: children[0].String()}, free.Revision)
	records, rev, err := h.conn.Capacity(t.Context())
	require.NoError(t, err)
	tx.SetCapacity(records, rev)
	tx.CreateRecord(&job.Record{ID: parseID(t, "0b0e7b1c-6a4d-4f0a-9c39-5a0a00000000"), Kind: job.KindLeaf, State: job.StateQueued})
	_, err = tx.Commit(t.Context())
	require.NoError(t, err)

	var trailer metadata.MD
	resp, err := h.rm.SetPowerState(with(t.Context(), metaOnBusy, onBusyForce),
		&rackmanager.SetPowerStateRequest{RackId: "r1", NodeId: "n0", Operation: opOn}, grpc.Trailer(&trailer))
	require.NoError(t, err)
	requireFailure(t, resp.GetStatus())
	require.Contains(t, first(trailer, metaReason), "others keep taking the node")
	require.Empty(t, h.notes(children[0]))
}

// TestForceIsNotBesideAJobThatHasLeft: it has left the node between the look at the lock
// and the note in its history, so that another job may have the node, whose history says
// nothing.
func TestForceIsNotBesideAJobThatHasLeft(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asAdmin)
	_, children := h.admit("r1", 1)
	_, others := h.admit("r2", 1)
	holder, other := node.Ref{RackID: "r1", NodeID: "n0"}, node.Ref{RackID: "r2", NodeID: "n0"}
	hold := h.server.newHold(t.Context(), "POWER_OPERATION_ON", time.Minute)
	ctx, at := withNotes(t.Context()), time.Now()
	require.ErrorIs(t, hold.goBeside(ctx, other, children[0], at), bus.ErrNotFound)
	_, beside := notesOf(ctx)
	require.Empty(t, beside)

	for range 2 { // as when the answer of the broker was lost
		require.NoError(t, hold.goBeside(ctx, holder, children[0], at.Add(1)))
	}
	require.Len(t, h.notes(children[0]), 2, "one for each node")
	require.Empty(t, h.notes(others[0]))
}

// TestAuditNamesTheJobsOfARack: a forced batch is found by any of them.
func TestAuditNamesTheJobsOfARack(t *testing.T) {
	t.Parallel()
	ctx := withNotes(t.Context())
	ids := make([]string, 27)
	top := parseID(t, "0b0e7b1c-6a4d-4f0a-9c39-5a0a00000000")
	for i := range ids {
		ids[i] = top.Child(uint32(i) + 1).String()
		tellBeside(ctx, top.Child(uint32(i)+1))
	}
	r := auditRecord(ctx, ended{req: &rackmanager.BatchSetPowerStateRequest{}, start: time.Now()})
	require.Equal(t, strings.Join(ids, ","), r.GetAttributes()[besideJobs])
}

// notes returns the notes in the history of a job.
func (h *harness) notes(id job.ID) (out []string) {
	h.t.Helper()
	history, err := h.jobs.GetJobEvents(h.t.Context(), &rackbusv1.GetJobEventsRequest{JobId: id.String()})
	require.NoError(h.t, err)
	for _, e := range history.GetEvents() {
		if e.GetKind() == job.EventNote.String() {
			out = append(out, e.GetDescription())
		}
	}
	return out
}
