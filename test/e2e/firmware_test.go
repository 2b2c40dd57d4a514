// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

const (
	trayGB200 = int32(rackmanager.NodeType_COMPUTE_GB200_NVIDIA)
	trayGB300 = int32(rackmanager.NodeType_COMPUTE_GB300_NVIDIA)
)

func (s *scene) updateOne(t *testing.T) {
	ctx := within(t)
	s.WriteTrayPackage("tray-1.fwpkg", "1.0.1")
	for _, rack := range s.Racks {
		tray := rack.Device("compute-0001")
		require.NotEqual(t, "1.0.1", tray.Version(cluster.TrayComponent))
		before := tray.Resets()
		id := s.update(ctx, t, rack, tray.ID(), "tray-1.fwpkg")
		job := s.completed(ctx, t, id)
		require.Equal(t, tray.ID(), job.GetNodeId())
		require.Equal(t, rack.ID(), job.GetRackId())
		require.Equal(t, "1.0.1", tray.Version(cluster.TrayComponent))
		require.Greater(t, tray.Resets(), before, "the new firmware was activated")
		require.Equal(t, bmc.PowerOn, tray.PowerState())
		require.Len(t, rack.Uploads(tray.ID()), 1)
	}
}

// watch: the Jobs service tells the same story, as a stream and as a list.
func (s *scene) watch(t *testing.T) {
	ctx := within(t)
	s.WriteTrayPackage("tray-2.fwpkg", "1.0.2")
	stream, err := s.Jobs.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{Filter: &rackbusv1.JobFilter{NodeId: "compute-0002"}})
	require.NoError(t, err)
	for {
		m, err := stream.Recv()
		require.NoError(t, err)
		if m.GetSnapshotComplete() {
			break
		}
	}
	id := s.update(ctx, t, s.gb200, "compute-0002", "tray-2.fwpkg")
	var states []rackbusv1.JobState
	for len(states) == 0 || states[len(states)-1] != rackbusv1.JobState_JOB_STATE_COMPLETED {
		m, err := stream.Recv()
		require.NoError(t, err)
		if m.GetJob().GetJobId() != id {
			continue
		}
		if state := m.GetJob().GetState(); len(states) == 0 || states[len(states)-1] != state {
			states = append(states, state)
		}
	}
	require.Subset(t, []rackbusv1.JobState{
		rackbusv1.JobState_JOB_STATE_QUEUED, rackbusv1.JobState_JOB_STATE_RUNNING, rackbusv1.JobState_JOB_STATE_COMPLETED,
	}, states)
	require.IsIncreasing(t, states)
	require.Contains(t, states, rackbusv1.JobState_JOB_STATE_RUNNING)

	list, err := s.Jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{Filter: &rackbusv1.JobFilter{
		NodeId: "compute-0002", States: []rackbusv1.JobState{rackbusv1.JobState_JOB_STATE_COMPLETED},
	}})
	require.NoError(t, err)
	require.Len(t, list.GetJobs(), 1)
	require.Equal(t, id, list.GetJobs()[0].GetJobId())
	got, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
	require.NoError(t, err)
	require.Nil(t, got.GetJob().GetFailure())
	require.NotEmpty(t, got.GetJob().GetStages())
	require.EqualValues(t, 1, got.GetJob().GetAttempt())
	history, err := s.Jobs.GetJobEvents(ctx, &rackbusv1.GetJobEventsRequest{JobId: id})
	require.NoError(t, err)
	require.NotEmpty(t, history.GetEvents())
	require.Equal(t, rackbusv1.JobState_JOB_STATE_COMPLETED, history.GetEvents()[len(history.GetEvents())-1].GetState())
}

// updateAll updates every tray of a rack that the caller describes.
func (s *scene) updateAll(t *testing.T) {
	ctx := within(t)
	s.WriteTrayPackage("tray-3.fwpkg", "1.0.3")
	set := s.NodeSet(s.gb200, "compute-0001", "compute-0002", "compute-0003", "compute-0004")
	out, err := s.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: set, Activate: true,
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			trayGB200: {Targets: []*rackmanager.FirmwareTarget{{Filename: "tray-3.fwpkg"}}},
		},
	})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 4)
	require.Len(t, out.GetJobs(), 4)
	parent := s.completed(ctx, t, out.GetResponse().GetJobId())
	require.NotEmpty(t, parent.GetStateDescription())
	children := s.children(ctx, t, parent.GetJobId())
	require.Len(t, children, 4)
	for _, child := range children {
		s.completed(ctx, t, child.GetJobId())
		require.Equal(t, parent.GetJobId(), child.GetParentJobId())
		require.Equal(t, "1.0.3", s.gb200.Device(child.GetNodeId()).Version(cluster.TrayComponent))
	}
}

func (s *scene) updateByType(t *testing.T) {
	ctx := within(t)
	out, err := s.BatchUpdateFirmwareByNodeType(ctx, &rackmanager.BatchUpdateFirmwareByNodeTypeRequest{
		RackId: s.gb300.ID(), NodeType: rackmanager.NodeType(trayGB300), Filename: "tray-3.fwpkg", Activate: true,
	})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 2)
	s.completed(ctx, t, out.GetResponse().GetJobId())
	for _, id := range []string{"compute-0001", "compute-0002"} {
		require.Equal(t, "1.0.3", s.gb300.Device(id).Version(cluster.TrayComponent))
	}
}

// updateShelf: the controller takes the image on its reset, and hands over in the shape that looks like a failure.
func (s *scene) updateShelf(t *testing.T) {
	ctx := within(t)
	content, err := firmwarepackage.ShelfArchive("LITEON-BMC", "r1.5.7", "PF-1333-7R", []byte("controller image"))
	require.NoError(t, err)
	s.WriteFirmware("shelf-r1.5.7.tar", content)
	for i, handoff := range []bmc.Handoff{bmc.HandoffNone, bmc.HandoffAborted} {
		shelf := s.gb200.Device([]string{"powershelf-0001", "powershelf-0002"}[i])
		shelf.UpdateKnobs(func(k *bmc.Knobs) { k.Handoff = handoff })
		before := shelf.Resets()
		id := s.update(ctx, t, s.gb200, shelf.ID(), "shelf-r1.5.7.tar")
		s.completed(ctx, t, id)
		require.Equal(t, "OnReset", shelf.ApplyTime())
		require.Equal(t, before+1, shelf.Resets())
		require.Equal(t, "r1.5.7", shelf.Version(cluster.ShelfComponent))
		require.Equal(t, bmc.PowerOn, shelf.PowerState(), "the power of the rack stays on")
	}
}

// upToDate: what is installed already is not sent again.
func (s *scene) upToDate(t *testing.T) {
	ctx := within(t)
	sent := len(s.gb200.Uploads("compute-0003"))
	s.completed(ctx, t, s.update(ctx, t, s.gb200, "compute-0003", "tray-3.fwpkg"))
	require.Len(t, s.gb200.Uploads("compute-0003"), sent)
}

// failingTray: the device's own words reach the caller.
func (s *scene) failingTray(t *testing.T) {
	ctx := within(t)
	s.WriteTrayPackage("tray-4.fwpkg", "1.0.4")
	tray := s.gb200.Device("compute-0004")
	tray.UpdateKnobs(func(k *bmc.Knobs) {
		k.TaskEnd = &bmc.TaskEnd{Messages: []bmc.Message{{
			ID: "Update.1.0.VerificationFailed", Text: "The image of FW_BMC_0 could not be verified.", Severity: "Critical",
			Resolution: "Use an image signed for this tray.",
		}}}
	})
	out, err := s.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: s.NodeSet(s.gb200, "compute-0003", "compute-0004"), Activate: true,
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			trayGB200: {Targets: []*rackmanager.FirmwareTarget{{Filename: "tray-4.fwpkg"}}},
		},
	})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 2)
	parent := s.failed(ctx, t, out.GetResponse().GetJobId())
	require.Contains(t, parent.GetStateDescription(), "Batch complete: 1/2 succeeded, 1 failed")
	for _, child := range s.children(ctx, t, parent.GetJobId()) {
		if child.GetNodeId() == "compute-0003" {
			s.completed(ctx, t, child.GetJobId())
			continue
		}
		s.failed(ctx, t, child.GetJobId())
		require.Contains(t, child.GetErrorMessage(), "could not be verified")
		firmware := s.firmwareStatus(ctx, t, child.GetJobId())
		require.Contains(t, firmware.GetErrorMessage(), "could not be verified")
		require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_TASK_FAILED, firmware.GetErrorCode())
		require.Contains(t, child.GetErrorMessage()+child.GetResultJson(), "Update.1.0.VerificationFailed")
		got, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: child.GetJobId()})
		require.NoError(t, err)
		require.Equal(t, "TASK_EXCEPTION", got.GetJob().GetFailure().GetFailureCode())
		require.Equal(t, "Update.1.0.VerificationFailed", got.GetJob().GetFailure().GetDevice().GetMessageId())
	}
	require.NotEqual(t, "1.0.4", tray.Version(cluster.TrayComponent))
	require.Empty(t, tray.Pending())
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = nil })
}

// busyNode: a node is worked on by one job; the refusal names it, and a forced end frees the node.
func (s *scene) busyNode(t *testing.T) {
	ctx := within(t)
	tray := s.gb200.Device("compute-0001")
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt = 40 })
	holder := s.update(ctx, t, s.gb200, tray.ID(), "tray-4.fwpkg")
	_, err := s.gb200.WaitRequests(ctx, tray.ID(), reqlog.Filter{Path: "/redfish/v1/TaskService/Tasks/*", Method: "GET"}, 1)
	require.NoError(t, err)

	refused, err := s.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{
		RackId: s.gb200.ID(), NodeId: tray.ID(), Filename: "tray-4.fwpkg",
	})
	require.NoError(t, err)
	require.NotEqual(t, success, refused.GetStatus())
	require.Contains(t, refused.GetMessage(), holder)
	require.Empty(t, refused.GetJobId())
	power, err := s.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{
		RackId: s.gb200.ID(), NodeId: tray.ID(), Operation: rackmanager.PowerOperation_POWER_OPERATION_FORCE_OFF,
	})
	require.False(t, err == nil && power.GetStatus() == success, "the power of a node under update is not switched")
	require.Equal(t, bmc.PowerOn, tray.PowerState())
	read, err := s.GetPowerState(ctx, &rackmanager.GetPowerStateRequest{RackId: s.gb200.ID(), NodeId: tray.ID()})
	require.NoError(t, err)
	require.Equal(t, "ON", read.GetPstate(), "reads do not wait for jobs")
	batch, err := s.BatchUpdateFirmware(ctx, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: s.NodeSet(s.gb200, "compute-0001", "compute-0002"), Activate: true,
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			trayGB200: {Targets: []*rackmanager.FirmwareTarget{{Filename: "tray-4.fwpkg"}}},
		},
	})
	require.NoError(t, err)
	require.EqualValues(t, 1, batch.GetResponse().GetStats().GetFailedNodes())
	for _, r := range batch.GetResponse().GetNodeResults() {
		if r.GetNodeId() == tray.ID() {
			require.NotEqual(t, success, r.GetStatus())
			require.Contains(t, r.GetErrorMessage(), holder)
		}
	}
	s.completed(ctx, t, batch.GetResponse().GetJobId())

	cancelled, err := s.Jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{
		JobId: holder, Mode: rackbusv1.CancelMode_CANCEL_MODE_TERMINATE, Reason: "stuck",
	})
	require.NoError(t, err)
	require.Equal(t, holder, cancelled.GetJob().GetJobId())
	s.failed(ctx, t, holder)
	got, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: holder})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.JobState_JOB_STATE_TERMINATED, got.GetJob().GetState())
	require.Contains(t, got.GetJob().GetFailure().GetMessage(), "hardware state unknown")

	// The node is free in the same instant. The device still runs its task, and says so.
	next := s.update(ctx, t, s.gb200, tray.ID(), "tray-4.fwpkg")
	job := s.failed(ctx, t, next)
	require.Contains(t, job.GetErrorMessage(), "already runs an update task")
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt, k.LoseTasksOnRestart = 0, true })
	tray.Restart()
}

// cancelAtSafePoint: a job that waits for the device before it has touched it stops at once.
func (s *scene) cancelAtSafePoint(t *testing.T) {
	ctx := within(t)
	tray := s.gb300.Device("compute-0002")
	sent := len(s.gb300.Uploads(tray.ID()))
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = -1 })
	id := s.update(ctx, t, s.gb300, tray.ID(), "tray-4.fwpkg")
	_, err := s.PollJob(ctx, id, func(j *rackmanager.JobStatus) bool {
		return j.GetExecutionState() == rackmanager.JobExecutionState_JOB_EXECUTION_STATE_RUNNING
	})
	require.NoError(t, err)
	_, err = s.Jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{JobId: id, Reason: "changed my mind"})
	require.NoError(t, err)
	s.failed(ctx, t, id)
	got, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.JobState_JOB_STATE_CANCELLED, got.GetJob().GetState())
	require.Len(t, s.gb300.Uploads(tray.ID()), sent)
	tray.UpdateKnobs(func(k *bmc.Knobs) { k.BackgroundCopy = 0 })
	s.completed(ctx, t, s.update(ctx, t, s.gb300, tray.ID(), "tray-4.fwpkg"))
}
