// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

// TestK3ChildErrorNamesComponentVersionAndMessage: of three components the first fails, and the error of the child says
// which one, of which version, and what the device said.
func TestK3ChildErrorNamesComponentVersionAndMessage(t *testing.T) {
	t.Parallel()
	files, roots := startArtifacts(t)
	c := cluster.Start(t, cluster.Options{Settings: artifactSettings(roots), Racks: []sim.Options{{
		RackID: "k3", Timing: bmc.Timing{Task: 300 * time.Millisecond}, NodeTypes: []sim.NodeTypeCount{{Type: "compute_gb300_supermicro", Count: 1}},
	}}})
	s, rack := &scene{Cluster: c, Client: c.Client(0)}, c.Racks[0]
	refuseImages(rack.Devices()[0])
	ctx, r := forRack(t), newRelease(t, files, 1)
	out, err := s.ApplyFirmwareObject(ctx, &rackmanager.ApplyFirmwareObjectRequest{
		RackId: rack.ID(), ConfigJson: r.config, HardwareType: "k3", FirmwareType: "prod", Nodes: c.NodeSet(rack),
	})
	require.NoError(t, err)
	requireBatch(t, out.GetResponse(), 1)
	child := s.failed(ctx, t, out.GetJobs()[0].GetJobId())
	for what, text := range map[string]string{"component": "HMC", "version": r.versions["HMC"], "message": refusedImage} {
		require.Contains(t, child.GetErrorMessage()+child.GetResultJson(), text, what)
	}
	got, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: child.GetJobId()})
	require.NoError(t, err)
	failure := got.GetJob().GetFailure()
	require.NotEmpty(t, failure.GetPhase())
	require.Contains(t, failure.GetMessage()+failure.GetDevice().GetMessage(), refusedImage)
	require.NotEqual(t, rackbusv1.FailureRetry_FAILURE_RETRY_UNSPECIFIED, failure.GetRetry())
	require.NotEmpty(t, failure.GetAdvice())
	require.Equal(t, "docs/failure-codes.md#"+strings.ToLower(failure.GetFailureCode()), failure.GetRunbook())
}
