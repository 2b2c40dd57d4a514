// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/test/cluster"
)

// updateInWaves updates four trays, two at a time, with a confirmation in between. The jobs service is killed while
// the first wave is under way and while the second is held.
func (s *scene) updateInWaves(t *testing.T) {
	ctx := within(t)
	s.WriteTrayPackage("tray-8.fwpkg", "1.0.8")
	trays := []string{"compute-0001", "compute-0002", "compute-0003", "compute-0004"}
	before := make(map[string]int)
	for _, id := range trays {
		before[id] = len(s.gb200.Uploads(id))
	}
	out, err := s.BatchUpdateFirmware(metadata.AppendToOutgoingContext(ctx, "rackbus-rollout", "wave=2; confirm"),
		&rackmanager.BatchUpdateFirmwareRequest{
			Nodes: s.NodeSet(s.gb200, trays...), Activate: true,
			FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
				trayGB200: {Targets: []*rackmanager.FirmwareTarget{{Filename: "tray-8.fwpkg"}}},
			},
		})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), len(trays))
	id := out.GetResponse().GetJobId()
	s.awaitRollout(ctx, t, id, func(j *rackbusv1.Job) bool { return j.GetRollout().GetWave() == 1 })
	jobs := s.Processes(cluster.RoleJobs)[0]
	jobs.Kill()
	require.NoError(t, jobs.Start())
	require.NoError(t, jobs.WaitReady(ctx))
	held := s.awaitRollout(ctx, t, id, func(j *rackbusv1.Job) bool {
		return j.GetRollout().GetState() == rackbusv1.RolloutState_ROLLOUT_STATE_HELD
	})
	require.Contains(t, held.GetStateDescription(), "Held before wave 2")
	require.EqualValues(t, 2, held.GetChildren().GetCompleted())
	for i, tray := range trays {
		updated := s.gb200.Device(tray).Version(cluster.TrayComponent) == "1.0.8"
		require.Equal(t, i < 2, updated, tray)
		require.Equal(t, i < 2, len(s.gb200.Uploads(tray)) > before[tray], "nothing is sent to a tray before its wave")
	}
	jobs.Kill()
	_, err = s.Jobs.ResumeRollout(ctx, &rackbusv1.ResumeRolloutRequest{JobId: id})
	require.NoError(t, err, "it needs no jobs service")
	require.NoError(t, jobs.Start())
	require.NoError(t, jobs.WaitReady(ctx))
	s.completed(ctx, t, id)
	for _, tray := range trays {
		require.Equal(t, "1.0.8", s.gb200.Device(tray).Version(cluster.TrayComponent))
		require.Len(t, s.gb200.Uploads(tray), before[tray]+1)
	}
}

// awaitRollout follows a batch until ok.
func (s *scene) awaitRollout(ctx context.Context, t *testing.T, id string, ok func(*rackbusv1.Job) bool) *rackbusv1.Job {
	t.Helper()
	stream, err := s.Jobs.WatchJobs(ctx, &rackbusv1.WatchJobsRequest{Filter: &rackbusv1.JobFilter{TopLevelOnly: true}})
	require.NoError(t, err)
	for {
		m, err := stream.Recv()
		require.NoError(t, err)
		if m.GetJob().GetJobId() == id && ok(m.GetJob()) {
			return m.GetJob()
		}
	}
}
