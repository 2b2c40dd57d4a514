// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim/bmc"
)

// extras are what the jobs service does by itself: waves, an examination of a node that failed, cancellations.
func (s *scene) extras(t *testing.T) {
	ctx := within(t)
	s.WriteTrayPackage("waves.fwpkg", "10.0")
	failing := s.rack.Device("compute-0002")
	failing.UpdateKnobs(func(k *bmc.Knobs) {
		k.TaskEnd = &bmc.TaskEnd{Messages: []bmc.Message{{ID: "Update.1.0.VerificationFailed", Text: "no", Severity: "Critical"}}}
	})
	out, err := s.BatchUpdateFirmware(metadata.AppendToOutgoingContext(ctx, "rackbus-rollout", "wave=1; confirm; max-failures=2"),
		&rackmanager.BatchUpdateFirmwareRequest{
			Nodes: s.NodeSet(s.rack, "compute-0001", "compute-0002"), Activate: true,
			FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
				int32(s.NodeSet(s.rack, "compute-0001").GetNodes()[0].GetType()): {Targets: []*rackmanager.FirmwareTarget{{Filename: "waves.fwpkg"}}},
			},
		})
	require.NoError(t, err)
	require.Equal(t, success, out.GetResponse().GetStatus(), "%v", out)
	id := out.GetResponse().GetJobId()
	s.until(t, id, func(j *rackbusv1.Job) bool {
		return j.GetRollout().GetState() == rackbusv1.RolloutState_ROLLOUT_STATE_HELD
	})
	_, err = s.Jobs.ResumeRollout(ctx, &rackbusv1.ResumeRolloutRequest{JobId: id})
	require.NoError(t, err)
	_, err = s.WaitJob(ctx, id)
	require.NoError(t, err)

	rows, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id, IncludeChildren: true})
	require.NoError(t, err)
	var failed string
	for _, child := range rows.GetChildren() {
		if child.GetNodeId() == failing.ID() {
			failed = child.GetJobId()
		}
	}
	var diagnosis []*rackbusv1.Job
	require.Eventually(t, func() bool {
		list, err := s.Jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{Filter: &rackbusv1.JobFilter{AboutJobId: failed}})
		require.NoError(t, err)
		diagnosis = list.GetJobs()
		return len(diagnosis) > 0
	}, patience, poll)
	_, err = s.WaitJob(ctx, diagnosis[0].GetJobId())
	require.NoError(t, err)
	failing.UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = nil })

	cancelled := s.installImage(ctx, t)
	_, err = s.Jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{JobId: cancelled, Mode: rackbusv1.CancelMode_CANCEL_MODE_TERMINATE})
	require.NoError(t, err)
	_, err = s.WaitJob(ctx, cancelled)
	require.NoError(t, err)
	s.requireNoRefusal(t)
}

// until polls a job.
func (s *scene) until(t *testing.T, id string, wanted func(*rackbusv1.Job) bool) {
	t.Helper()
	ctx := within(t)
	require.Eventually(t, func() bool {
		got, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id})
		require.NoError(t, err)
		return wanted(got.GetJob())
	}, patience, poll)
}
