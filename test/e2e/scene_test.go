// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is the limit of everything that ought to take a second or two.
const patience = 90 * time.Second

const success = rackmanager.ReturnCode_RETURN_CODE_SUCCESS

// scene is a running cluster with two racks.
type scene struct {
	*cluster.Cluster
	*cluster.Client
	gb200, gb300 *sim.Rack
}

func newScene(t *testing.T) *scene {
	timing := bmc.Timing{Task: 300 * time.Millisecond, BMCOutage: 200 * time.Millisecond}
	c := cluster.Start(t, cluster.Options{Racks: []sim.Options{
		{RackID: "gb200", Compute: 4, PowerShelves: 2, Timing: timing, Seed: 1},
		{RackID: "gb300", Compute: 2, PowerShelves: 1, Timing: timing, Seed: 2, ComputeGeneration: sim.GB300, ShelfGeneration: sim.GB300},
	}})
	return &scene{Cluster: c, Client: c.Client(0), gb200: c.Racks[0], gb300: c.Racks[1]}
}

// within returns a context for one scenario.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, context.DeadlineExceeded)
	t.Cleanup(cancel)
	return ctx
}

// completed waits for a job and checks that both status calls tell of success and of no error.
func (s *scene) completed(ctx context.Context, t *testing.T, id string) *rackmanager.JobStatus {
	t.Helper()
	require.NotEmpty(t, id)
	job, err := s.WaitJob(ctx, id)
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, job.GetExecutionState(), "%v", job)
	require.Empty(t, job.GetErrorMessage())
	require.NotRegexp(t, `"error_message":\s*"[^"]`, job.GetResultJson(), "D8: clients take any error message for a failure")
	require.Equal(t, rackmanager.JobError_JOB_ERROR_UNSPECIFIED, job.GetErrorCode())
	firmware := s.firmwareStatus(ctx, t, id)
	require.Equal(t, rackmanager.FirmwareJobState_FIRMWARE_JOB_STATE_COMPLETED, firmware.GetJobState())
	require.Empty(t, firmware.GetErrorMessage())
	return job
}

// failed waits for a job that must fail.
func (s *scene) failed(ctx context.Context, t *testing.T, id string) *rackmanager.JobStatus {
	t.Helper()
	require.NotEmpty(t, id)
	job, err := s.WaitJob(ctx, id)
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, job.GetExecutionState(), "%v", job)
	require.NotEmpty(t, job.GetErrorMessage())
	return job
}

func (s *scene) firmwareStatus(ctx context.Context, t *testing.T, id string) *rackmanager.GetFirmwareJobStatusResponse {
	t.Helper()
	out, err := s.GetFirmwareJobStatus(ctx, &rackmanager.GetFirmwareJobStatusRequest{JobId: id})
	require.NoError(t, err)
	require.Equal(t, success, out.GetStatus())
	require.Equal(t, id, out.GetJobId())
	return out
}

// children returns the children of a job.
func (s *scene) children(ctx context.Context, t *testing.T, id string) []*rackmanager.JobStatus {
	t.Helper()
	out, err := s.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: id, IncludeChildJobStates: true})
	require.NoError(t, err)
	states := out.GetJobStates()
	require.NotEmpty(t, states)
	require.Equal(t, id, states[0].GetJobId())
	require.Len(t, states[1:], len(states[0].GetChildJobIds()))
	return states[1:]
}

// update starts an update of one tray that must be accepted.
func (s *scene) update(ctx context.Context, t *testing.T, rack *sim.Rack, node, file string) string {
	t.Helper()
	out, err := s.UpdateFirmware(ctx, &rackmanager.UpdateFirmwareRequest{
		RackId: rack.ID(), NodeId: node, Filename: file, Activate: true,
	})
	require.NoError(t, err)
	require.Equal(t, success, out.GetStatus(), out.GetMessage())
	require.Equal(t, rackmanager.FirmwareUpdateError_FIRMWARE_UPDATE_ERROR_SUCCESS, out.GetErrorCode())
	require.NotEmpty(t, out.GetJobId())
	return out.GetJobId()
}
