// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Every type is taken at submit.
func TestUpdatableTypes(t *testing.T) {
	t.Parallel()
	for _, typ := range node.Types() {
		file := "image.bin"
		if typ.ID == "compute_gb300_supermicro" {
			file = "smc_obmc_1.bin"
		}
		err := checkWorkflow(typ, []*rackbusv1.FirmwareUpdateTarget{{File: file}}, false)
		require.NoError(t, err, typ.ID)
		require.NoError(t, checkUpdatable(typ), typ.ID)
	}
	require.Len(t, flashplan.NodeTypes(), 13)
	require.Error(t, checkUpdatable(node.Type{ID: "compute_of_a_later_version", Family: node.FamilyCompute}))
}

// What the agent's plan would refuse is refused at submit, with its cause.
func TestWorkflowRefusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		typ      string
		targets  []*rackbusv1.FirmwareUpdateTarget
		activate bool
		code     job.FailureCode
	}{
		"supermicro file": {"compute_gb300_supermicro", []*rackbusv1.FirmwareUpdateTarget{{Component: "HMC", File: "obmc.bin"}}, true, job.FailureInvalidArgument},
		"supermicro inactive": {"compute_gb300_supermicro", []*rackbusv1.FirmwareUpdateTarget{
			{Component: "HMC", File: "nosbios.fwpkg"}, {Component: "BIOS", File: "bios.bin"}}, false, job.FailurePreconditionFailed},
		"other vendor's shelf": {"powershelf_gb200_delta", []*rackbusv1.FirmwareUpdateTarget{{Key: "LiteOnPSU", File: "a.tar"}}, true, job.FailureInvalidArgument},
		"switch component":     {"switch_gb300_nvidia", []*rackbusv1.FirmwareUpdateTarget{{Component: "../BMC", File: "a.fwpkg"}}, true, job.FailureInvalidArgument},
		"switch image with others": {"switch_vrnvl72_nvidia", []*rackbusv1.FirmwareUpdateTarget{
			{File: "nvos-amd64-25.02.4440.bin"}, {Component: "bmc", File: "a.fwpkg"}}, true, job.FailureInvalidArgument},
		"arm image": {"compute_gb200_nvidia", []*rackbusv1.FirmwareUpdateTarget{{Component: "BF3_BFB", File: "a.bfb"}}, true, job.FailurePreconditionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			typ, ok := node.ByID(tt.typ)
			require.True(t, ok)
			err := checkWorkflow(typ, tt.targets, tt.activate)
			var refused *workflowError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, tt.code, refused.code)
		})
	}
}

// In-band images and switches need a host that somebody can log in to.
func TestInBandNeedsAHost(t *testing.T) {
	t.Parallel()
	typ, ok := node.ByID("compute_gb200_wiwynn")
	require.True(t, ok)
	update := &rackbusv1.FirmwareUpdate{Targets: []*rackbusv1.FirmwareUpdateTarget{{Component: "CX7", File: "cx7.bin"}}, Activate: true}
	target := &rackbusv1.NodeTarget{}
	require.ErrorContains(t, checkHost(typ, target, update), "host endpoint")
	target.Host = &rackbusv1.DeviceEndpoint{Credentials: &rackbusv1.Sealed{}}
	require.NoError(t, checkHost(typ, target, update))
	require.NoError(t, checkHost(typ, &rackbusv1.NodeTarget{}, &rackbusv1.FirmwareUpdate{
		Targets: []*rackbusv1.FirmwareUpdateTarget{{File: "bmc.fwpkg"}}}))

	typ, ok = node.ByID("switch_gb200_nvidia")
	require.True(t, ok)
	update.Targets[0].Component = "bmc"
	require.ErrorContains(t, checkHost(typ, &rackbusv1.NodeTarget{NodeId: "sw"}, update), "missing host credentials for switch sw")
	require.NoError(t, checkHost(typ, target, update))
}
