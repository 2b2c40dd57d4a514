// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// waves asks for a batch on the nodes with request metadata.
func (h *harness) waves(nodes int, pairs ...string) (*rackmanager.BatchUpdateFirmwareResponse, error) {
	h.t.Helper()
	h.firmware("fw.pkg", "firmware")
	req := &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: &rackmanager.NodeSet{}, FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			1: {Targets: []*rackmanager.FirmwareTarget{{Filename: "fw.pkg"}}},
		},
	}
	for i := range nodes {
		req.Nodes.Nodes = append(req.Nodes.Nodes, compute("r1", fmt.Sprintf("n%d", i)))
	}
	return h.rm.BatchUpdateFirmware(with(h.t.Context(), pairs...), req)
}

func TestRolloutMetadata(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asAdmin)
	for _, bad := range []struct {
		pairs []string
		text  string
	}{
		{[]string{metaRollout, "waves=1"}, `"waves" is not known`},
		{[]string{metaRollout, ""}, "wave is missing"},
		{[]string{metaRollout, "wave=1", metaRollout, "confirm"}, "is given 2 times"},
		{[]string{metaRollout, "wave=1", metaOnBusy, "queue"}, "none can wait behind another job"},
		{[]string{metaRollout, "wave=1", metaOnBusy, "supersede"}, "none can wait behind another job"},
	} {
		_, err := h.waves(1, bad.pairs...)
		requireCode(t, err, codes.InvalidArgument, bad.text)
	}
	resp, err := h.waves(1, metaRollout, "wave=1; per=domain")
	require.NoError(t, err)
	requireFailure(t, resp.GetResponse().GetStatus())
	require.Contains(t, resp.GetResponse().GetMessage(), "needs an operation with a switch domain")

	before := time.Now()
	resp, err = h.waves(2, metaRollout, "wave=50%; per=rack; max-failures=1; pause=5m", metaDeadline, "2h")
	require.NoError(t, err)
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	id := resp.GetResponse().GetJobId()
	got, err := h.jobs.GetJob(t.Context(), &rackbusv1.GetJobRequest{JobId: id})
	require.NoError(t, err)
	o := got.GetJob().GetRollout()
	require.Equal(t, uint32(50), o.GetPlan().GetWavePercent())
	require.Equal(t, rackbusv1.RolloutSpread_ROLLOUT_SPREAD_ONE_PER_RACK, o.GetPlan().GetSpread())
	require.Equal(t, uint32(1), o.GetPlan().GetMaxFailures())
	require.Equal(t, 5*time.Minute, o.GetPlan().GetPause().AsDuration())
	require.Equal(t, rackbusv1.RolloutState_ROLLOUT_STATE_PAUSING, o.GetState())
	require.Empty(t, o.GetPlaces())
	require.Equal(t, "The first wave follows; 0 of 2 done in all", got.GetJob().GetStateDescription())
	require.Equal(t, "wave=50%; per=rack; max-failures=1; pause=5m", h.audited(&rackbusv1.ListAuditRecordsRequest{JobId: id})[0].GetAttributes()["rollout"])
	require.WithinDuration(t, before.Add(2*time.Hour), got.GetJob().GetDeadline().AsTime(), time.Minute)
	for i := range uint32(2) {
		at := node.Ref{RackID: "r1", NodeID: fmt.Sprintf("n%d", i)}
		_, _, err := h.conn.Command(t.Context(), node.FamilyCompute, at)
		require.ErrorIs(t, err, bus.ErrNotFound, "no agent may start before its wave")
		_, err = h.conn.ParkedCommand(t.Context(), at, parseID(t, id).Child(i+1))
		require.NoError(t, err)
	}
	_, err = h.waves(2, metaRollout, "wave=1")
	require.NoError(t, err)
	second, err := h.waves(2)
	require.NoError(t, err)
	requireFailure(t, second.GetResponse().GetStatus())
	require.Contains(t, second.GetResponse().GetNodeResults()[1].GetErrorMessage(), "already in progress (job_id "+id[:24])

	require.Eventually(t, func() bool {
		list, err := h.jobs.ListJobs(t.Context(), &rackbusv1.ListJobsRequest{Filter: &rackbusv1.JobFilter{TopLevelOnly: true}})
		require.NoError(t, err)
		for _, j := range list.GetJobs() {
			if j.GetJobId() == id {
				return j.GetRollout().GetPlan().GetWavePercent() == 50
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond)

	reset, err := h.rm.BatchResetSwitchFactoryDefault(with(t.Context(), metaRollout, "wave=5; per=domain"),
		&rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: set(switchNode("r1", 1), switchNode("r2", 2))})
	require.NoError(t, err)
	requireSuccess(t, reset.GetResponse().GetStatus(), reset.GetResponse().GetMessage())
	r, _, err := h.conn.Record(t.Context(), parseID(t, reset.GetResponse().GetJobId()))
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 0}, r.Rollout.Places, "the two are of the same domain")
}

func TestOtherCallsRefuseARollout(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	ctx := with(t.Context(), metaRollout, "wave=1")
	const text = "starts no batch of nodes, so it has no waves"
	_, err := h.rm.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{})
	requireCode(t, err, codes.InvalidArgument, text)
	_, err = h.rm.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{})
	requireCode(t, err, codes.InvalidArgument, text)
	_, err = h.rm.ExecuteColdReboot(ctx, &rackmanager.ExecuteColdRebootRequest{})
	requireCode(t, err, codes.InvalidArgument, text)
	_, err = h.jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{})
	requireCode(t, err, codes.InvalidArgument, text)
	watch, err := h.jobs.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	requireCode(t, err, codes.InvalidArgument, text)

	// Every method that takes a plan exists, and hands it on: jobMetaOf is the only
	// way to a batch.
	taken := 0
	for name, info := range h.server.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			if takesRollout("/" + name + "/" + m.Name) {
				taken++
			}
		}
	}
	require.Equal(t, 14, taken)
}

func TestSteerARollout(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	pause := func(id, reason string) (*rackbusv1.Job, error) {
		resp, err := h.jobs.PauseRollout(t.Context(), &rackbusv1.PauseRolloutRequest{JobId: id, Reason: reason})
		return resp.GetJob(), err
	}
	resume := func(id string) (*rackbusv1.Job, error) {
		resp, err := h.jobs.ResumeRollout(t.Context(), &rackbusv1.ResumeRolloutRequest{JobId: id})
		return resp.GetJob(), err
	}
	abort := func(id, reason string) (*rackbusv1.Job, error) {
		resp, err := h.jobs.AbortRollout(t.Context(), &rackbusv1.AbortRolloutRequest{JobId: id, Reason: reason})
		return resp.GetJob(), err
	}
	_, err := pause("", "")
	requireCode(t, err, codes.InvalidArgument, "job_id is required")
	_, err = resume(unknownJob)
	requireCode(t, err, codes.NotFound, "not found")
	plain, children := h.admit("r9", 1)
	_, err = abort(plain.String(), "")
	requireCode(t, err, codes.FailedPrecondition, "does not start its nodes in waves")
	_, err = pause(children[0].String(), "")
	requireCode(t, err, codes.FailedPrecondition, "does not start its nodes in waves")

	resp, err := h.waves(3, metaRollout, "wave=1")
	require.NoError(t, err)
	id := resp.GetResponse().GetJobId()
	fired := h.timers()
	require.Equal(t, bus.Timer{Kind: bus.TimerRollout, ID: parseID(t, id)}, fired(), "the first wave")
	got, err := pause(id, "lunch")
	require.NoError(t, err)
	require.Equal(t, rackbusv1.RolloutState_ROLLOUT_STATE_HELD, got.GetRollout().GetState())
	require.Equal(t, "lunch", got.GetRollout().GetReason())
	require.NotEmpty(t, got.GetRollout().GetRequestedBy())
	require.Contains(t, got.GetStateDescription(), "Held before wave 1: lunch")
	_, err = pause(id, "again")
	require.NoError(t, err)
	got, err = resume(id)
	require.NoError(t, err)
	require.Equal(t, rackbusv1.RolloutState_ROLLOUT_STATE_PAUSING, got.GetRollout().GetState())
	require.Equal(t, bus.Timer{Kind: bus.TimerRollout, ID: parseID(t, id)}, fired(), "the jobs service is woken")

	got, err = abort(id, "wrong image")
	require.NoError(t, err)
	require.Equal(t, rackbusv1.RolloutStop_ROLLOUT_STOP_ABORTED, got.GetRollout().GetStop())
	require.Contains(t, got.GetStateDescription(), "The rollout was aborted: wrong image")
	_, err = abort(id, "again")
	require.NoError(t, err, "repeating it changes nothing")
	_, err = resume(id)
	requireCode(t, err, codes.FailedPrecondition, "the rollout is over: the rollout was aborted: wrong image")
	_, err = pause(id, "")
	requireCode(t, err, codes.FailedPrecondition, "the rollout is over")

	history, err := h.jobs.GetJobEvents(t.Context(), &rackbusv1.GetJobEventsRequest{JobId: id})
	require.NoError(t, err)
	var notes []string
	for _, e := range history.GetEvents() {
		if e.GetKind() == "note" {
			notes = append(notes, e.GetDescription())
		}
	}
	require.Len(t, notes, 3)
	require.Contains(t, notes[0], "rollout paused by ")
	require.Contains(t, notes[2], "the rollout was aborted: wrong image")

	// One whose wave is under way, as the jobs service leaves it.
	other := h.roll("r2", "wave=1; confirm")
	h.beginWave(other)
	_, err = resume(other.String())
	requireCode(t, err, codes.FailedPrecondition, "wave 1 is under way")
}

// TestAResumeIsForOneWave repeats one whose wave has ended meanwhile: the next wave is
// held, and nobody has looked at what came of the one before it.
func TestAResumeIsForOneWave(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	id := h.roll("r3", "wave=1; confirm")
	resume := func(seen uint32) error {
		_, err := h.jobs.ResumeRollout(t.Context(), &rackbusv1.ResumeRolloutRequest{JobId: id.String(), ExpectedWave: &seen})
		return err
	}
	_, err := h.jobs.PauseRollout(t.Context(), &rackbusv1.PauseRolloutRequest{JobId: id.String()})
	require.NoError(t, err)
	requireCode(t, resume(1), codes.FailedPrecondition, "it is at wave 0 of 0 (held), not 1")
	require.NoError(t, resume(0))
	h.beginWave(id)
	requireCode(t, resume(0), codes.FailedPrecondition, "it is at wave 1 of 2 (running), not 0")
	h.change(id, func(r job.Record) job.Record { // as when the wave has ended
		held, _, err := job.HoldRollout(r, "", "", time.Now())
		require.NoError(t, err)
		return held
	})
	requireCode(t, resume(0), codes.FailedPrecondition, "it is at wave 1 of 2 (held), not 0")
	require.NoError(t, resume(1))
}

// change writes a record as somebody else of the jobs service would.
func (h *harness) change(id job.ID, to func(job.Record) job.Record) {
	h.t.Helper()
	r, rev, err := h.conn.Record(h.t.Context(), id)
	require.NoError(h.t, err)
	next := to(r)
	tx := h.conn.Begin()
	tx.ReplaceRecord(&next, rev)
	_, err = tx.Commit(h.t.Context())
	require.NoError(h.t, err)
}

// beginWave begins the wave that is due, as the jobs service does.
func (h *harness) beginWave(id job.ID) {
	h.t.Helper()
	h.change(id, func(r job.Record) job.Record {
		next, ok := job.StartWave(r, time.Now())
		require.True(h.t, ok)
		return next
	})
}

// roll admits two nodes of a rack with a plan.
func (h *harness) roll(rack, plan string) job.ID {
	h.t.Helper()
	resp, err := h.rm.BatchResetSwitchFactoryDefault(with(h.t.Context(), metaRollout, plan),
		&rackmanager.BatchResetSwitchFactoryDefaultRequest{Nodes: set(switchNode(rack, 1), switchNode(rack, 2))})
	require.NoError(h.t, err)
	return parseID(h.t, resp.GetResponse().GetJobId())
}

// timers takes the timers that fire, in place of the jobs service, and returns what
// waits for the next one.
func (h *harness) timers() func() bus.Timer {
	ctx, cancel := context.WithCancel(h.t.Context())
	fired, done := make(chan bus.Timer, 100), make(chan struct{})
	go func() {
		defer close(done)
		_ = h.conn.HandleTimers(ctx, func(_ context.Context, timer bus.Timer) error {
			timer.At = time.Time{}
			fired <- timer
			return nil
		})
	}()
	h.t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() bus.Timer {
		select {
		case timer := <-fired:
			return timer
		case <-time.After(30 * time.Second):
			h.t.Fatal("no timer fires")
			return bus.Timer{}
		}
	}
}
