// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

// previousRelease is the commit before jobs told what cannot be cut.
const previousRelease = "4183764a7d360b5b729ce59c1b1f3112f394c1f6"

// TestUpgrade begins jobs with the programs of the previous release and goes on with those of this tree. What was
// asked of the old ones, and what is asked of the new ones, is honoured.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	old, err := cluster.Release(t, previousRelease)
	if errors.Is(err, cluster.ErrNoCommit) {
		t.Skipf("the previous release cannot be built: %v", err)
	}
	require.NoError(t, err)
	c := cluster.Start(t, cluster.Options{Programs: old, Racks: []sim.Options{{
		RackID: "up", Compute: 4, KeepRequests: 1 << 16, Timing: bmc.Timing{Task: 500 * time.Millisecond, BMCOutage: 200 * time.Millisecond},
	}}})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 6*time.Minute, context.DeadlineExceeded)
	defer cancel()
	u := &upgrade{t: t, c: c, rack: c.Racks[0], api: c.Client(0)}
	c.WriteTrayPackage("tray.fwpkg", "7.7.7")
	created, err := u.api.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: c.NodeSet(u.rack)})
	require.NoError(t, err)
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, created.GetResponse().GetStatus())

	// Two wait before they touch their trays, one while its tray installs.
	waiting, going, installing := u.tray(0), u.tray(1), u.tray(2)
	waiting.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = -1 })
	going.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = -1 })
	installing.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt = 50 })
	graceful, lasting, forced := u.update(ctx, waiting), u.update(ctx, going), u.update(ctx, installing)
	for _, id := range []string{graceful, lasting} {
		u.await(ctx, id, func(j *rackbusv1.Job) bool { return j.GetState() == rackbusv1.JobState_JOB_STATE_RUNNING })
	}
	u.await(ctx, forced, func(j *rackbusv1.Job) bool { return inStage(j, "install") })

	// The old agent goes, then the old jobs service: a request that the old API takes is left to the new one.
	u.stop(ctx, cluster.RoleComputeAgent)
	queued := u.update(ctx, u.tray(3))
	u.stop(ctx, cluster.RoleJobs)
	asked, err := u.api.Jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{JobId: queued, Reason: "not today"})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.JobState_JOB_STATE_QUEUED, asked.GetJob().GetState())
	u.stop(ctx, cluster.RoleAPI)
	for _, role := range []string{cluster.RoleJobs, cluster.RoleAPI} {
		u.startNew(ctx, role)
	}
	u.ends(ctx, queued, rackbusv1.JobState_JOB_STATE_CANCELLED)
	require.Empty(t, u.rack.Requests(u.tray(3).ID(), reqlog.Filter{Writes: true}))

	u.startNew(ctx, cluster.RoleComputeAgent)
	u.await(ctx, forced, func(j *rackbusv1.Job) bool { return pinned(j, "install") })
	u.cancel(ctx, graceful, rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL)
	u.ends(ctx, graceful, rackbusv1.JobState_JOB_STATE_CANCELLED)
	require.Empty(t, u.rack.Uploads(waiting.ID()), "its tray was never touched")

	u.cancel(ctx, forced, rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL)
	j := u.await(ctx, forced, func(j *rackbusv1.Job) bool {
		return j.GetState() == rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED
	})
	require.Contains(t, j.GetStateDescription(), "cannot be cut; it may take up to")
	u.cancel(ctx, forced, rackbusv1.CancelMode_CANCEL_MODE_TERMINATE)
	j = u.ends(ctx, forced, rackbusv1.JobState_JOB_STATE_TERMINATED)
	require.Contains(t, j.GetFailure().GetMessage(), "hardware state unknown; in flight: task /redfish/v1/TaskService/Tasks/")
	require.Equal(t, "upgrade", j.GetCancel().GetNote())
	require.Len(t, u.rack.Uploads(installing.ID()), 1, "the new agent sent nothing again")

	going.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = 0 })
	u.ends(ctx, lasting, rackbusv1.JobState_JOB_STATE_COMPLETED)
}

// upgrade is one rack whose programs are replaced.
type upgrade struct {
	t    *testing.T
	c    *cluster.Cluster
	rack *sim.Rack
	api  *cluster.Client
}

func (u *upgrade) tray(i int) *sim.Device {
	u.t.Helper()
	return u.rack.Devices()[i]
}

func (u *upgrade) update(ctx context.Context, d *sim.Device) string {
	u.t.Helper()
	out, err := u.api.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{
		RackId: u.rack.ID(), NodeId: d.ID(), Filename: "tray.fwpkg", Activate: true,
	})
	require.NoError(u.t, err)
	require.NotEmpty(u.t, out.GetJobId(), out.GetMessage())
	return out.GetJobId()
}

func (u *upgrade) stop(ctx context.Context, role string) {
	u.t.Helper()
	for _, p := range u.c.Processes(role) {
		require.NoError(u.t, p.Stop(ctx))
	}
}

// startNew starts the processes of a role with the program of this tree.
func (u *upgrade) startNew(ctx context.Context, role string) {
	u.t.Helper()
	for _, p := range u.c.Processes(role) {
		p.UsePrograms(cluster.Programs(u.t))
		require.NoError(u.t, p.Start())
		require.NoError(u.t, p.WaitReady(ctx))
	}
}

func (u *upgrade) cancel(ctx context.Context, id string, mode rackbusv1.CancelMode) {
	u.t.Helper()
	_, err := u.api.Jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{JobId: id, Mode: mode, Reason: "upgrade"})
	require.NoError(u.t, err)
}

// await polls a job until ok.
func (u *upgrade) await(ctx context.Context, id string, ok func(*rackbusv1.Job) bool) *rackbusv1.Job {
	u.t.Helper()
	for {
		out, err := u.api.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
		if err == nil && ok(out.GetJob()) {
			return out.GetJob()
		}
		if ctx.Err() != nil {
			require.FailNow(u.t, "the job does not get there", "%v, %v", out.GetJob(), err)
		}
		wait(ctx, pollPause)
	}
}

// ends waits for the end of a job, which is to be this one.
func (u *upgrade) ends(ctx context.Context, id string, want rackbusv1.JobState) *rackbusv1.Job {
	u.t.Helper()
	j := u.await(ctx, id, func(j *rackbusv1.Job) bool { return j.GetFinishedAt() != nil })
	require.Equal(u.t, want.String(), j.GetState().String(), "%v", j)
	return j
}

func inStage(j *rackbusv1.Job, name string) bool {
	for _, s := range j.GetStages() {
		if s.GetName() == name {
			return s.GetStatus() == rackbusv1.StageStatus_STAGE_STATUS_RUNNING
		}
	}
	return false
}

// pinned says that a stage runs, and that its agent tells that it cannot be cut: only the new one does.
func pinned(j *rackbusv1.Job, name string) bool {
	for _, s := range j.GetStages() {
		if s.GetName() == name {
			return s.GetStatus() == rackbusv1.StageStatus_STAGE_STATUS_RUNNING && s.GetUninterruptible()
		}
	}
	return false
}
