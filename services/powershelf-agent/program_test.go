// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	powershelfagent "github.com/rackbus/rackbus/services/powershelf-agent"
)

// The program drives shelves with what the configuration tells, and keeps secrets to
// itself.
func TestRunFromConfiguration(t *testing.T) {
	b := newBench(t)
	logs, stop := b.Run(powershelfagent.Program())
	j := b.run(&rackbusv1.FirmwareUpdate{
		Targets: []*rackbusv1.FirmwareUpdateTarget{b.image("openbmc_r1.9.9.tar")}, Activate: true,
	})
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "ON", b.Ask(b.node, redfishagent.OpPowerGet).GetPowerState())
	stop()
	require.Contains(t, logs.String(), "job finished")
	require.NotContains(t, logs.String(), b.shelf.Password())
}
