// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
)

// TestDiagnoseShelves examines shelves of both makers: what a shelf does not have is
// skipped, and a supply that does not read healthy is found.
func TestDiagnoseShelves(t *testing.T) {
	for name, c := range map[string]struct {
		typ, supply string
	}{
		"liteon": {"powershelf_gb200_liteon", "/redfish/v1/Chassis/powershelf/PowerSubsystem/PowerSupplies/2"},
		"delta":  {"powershelf_gb300_delta", "/redfish/v1/Chassis/chassis/PowerSubsystem/PowerSupplies/2"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newShelf(t, of(c.typ))
			examine := func() *job.Diagnostics {
				id := b.Admit(b.node, nil, func(cmd *rackbusv1.JobCommand) {
					cmd.Type = string(job.TypeNodeDiagnostics)
					cmd.Operation = &rackbusv1.JobCommand_NodeDiagnosis{NodeDiagnosis: &rackbusv1.NodeDiagnosis{}}
				})
				j := b.Await(id)
				require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
				_, err := b.Conn.Evidence(t.Context(), bus.EvidenceManifest(id))
				require.NoError(t, err)
				return j.Diagnostics
			}
			healthy := examine()
			require.Equal(t, diagnostics.SignatureNoFault, healthy.FailureSignature, healthy.Summary)
			for _, o := range healthy.Collectors {
				require.NotEqual(t, job.CollectorFailed, o.Status, "%s: %s", o.Name, o.Message)
				if o.Name == "power_supplies" {
					require.Equal(t, job.CollectorCollected, o.Status)
				}
			}
			b.rack.AddFault(faults.Rule{
				Selector: faults.Selector{Path: c.supply},
				Action:   faults.Action{JSONMerge: []byte(`{"Status":{"Health":"Critical"}}`)},
			})
			found := examine()
			require.Equal(t, "POWER_SUPPLY_FAULT", found.FailureSignature)
			require.Contains(t, found.Summary, c.supply)
			b.shelf.UpdateKnobs(func(k *bmc.Knobs) { k.SensorHealth = map[string]string{"Inlet_Temp_0": "Critical"} })
			require.Equal(t, "POWER_SUPPLY_FAULT", examine().FailureSignature, "the first rule of the table counts")
		})
	}
}
