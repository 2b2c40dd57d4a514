// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

func TestSkippedStageIsNamed(t *testing.T) {
	task := &Task{timeline: job.NewTimeline(job.ID{}, []job.StageName{{Name: "idle"}}, now())}
	task.skipCurrent("already there")
	require.Equal(t, "Stage idle skipped: already there", task.description)
	require.Equal(t, job.StageSkipped, task.timeline.Stages[0].Status)
}
