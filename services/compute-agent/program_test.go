// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	computeagent "github.com/rackbus/rackbus/services/compute-agent"
)

// The program drives trays with what the configuration tells, and keeps secrets to
// itself.
func TestRunFromConfiguration(t *testing.T) {
	b := newBench(t)
	logs, stop := b.Run(computeagent.Program())
	j := b.run(activated(b.raw("FW_BMC_0", "obmc_7.bin")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "ON", b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
	stop()
	require.Contains(t, logs.String(), "job finished")
	require.NotContains(t, logs.String(), b.tray.Password())
}
