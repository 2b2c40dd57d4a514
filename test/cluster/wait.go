// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

// statusPoll is the pause between two looks at a job.
const statusPoll = 50 * time.Millisecond

// Ended reports whether the published state is one of a job that has ended.
func Ended(s rackmanager.JobExecutionState) bool {
	return s == rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED ||
		s == rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED
}

// WaitJob polls GetJobStatus until the job has ended.
func (c *Client) WaitJob(ctx context.Context, id string) (*rackmanager.JobStatus, error) {
	return c.PollJob(ctx, id, func(s *rackmanager.JobStatus) bool { return Ended(s.GetExecutionState()) })
}

// PollJob polls GetJobStatus until the job is as wanted.
func (c *Client) PollJob(ctx context.Context, id string, wanted func(*rackmanager.JobStatus) bool) (*rackmanager.JobStatus, error) {
	tick := time.NewTicker(statusPoll)
	defer tick.Stop()
	for {
		answer, err := c.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: id})
		if err != nil {
			return nil, fmt.Errorf("read status of job %s: %w", id, err)
		}
		if s := answer.GetJobStates()[0]; wanted(s) {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("job %s is still %s (%s): %w", id, answer.GetJobStates()[0].GetExecutionState(),
				answer.GetJobStates()[0].GetStateDescription(), context.Cause(ctx))
		}
	}
}
