// SPDX-License-Identifier: Apache-2.0

package flashplan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
)

func TestSwitchTarget(t *testing.T) {
	for component, want := range map[string]string{
		"bmc": "BMC", "FPGA": "FPGA", "smr": "FPGA", "erot": "EROT", "cpld": "CPLD1", "cpld1": "CPLD1", "CPLD4": "CPLD1",
		"bios": "BIOS", " sbios ": "BIOS", "transceiver": "TRANSCEIVER", "sma": "SMA",
	} {
		got, err := flashplan.SwitchTarget(component)
		require.NoError(t, err, component)
		require.Equal(t, want, got, component)
	}
	for _, component := range []string{"", "/redfish/v1/x", "a b", "../x"} {
		_, err := flashplan.SwitchTarget(component)
		var refused *flashplan.Error
		require.ErrorAs(t, err, &refused, component)
	}
}

// A product that takes one package for all takes it for what its components are.
func TestBundleIsEveryComponent(t *testing.T) {
	bundles := 0
	for _, p := range product.All() {
		if !p.Bundle {
			continue
		}
		bundles++
		var targets []string
		for _, c := range p.Components {
			target, err := flashplan.SwitchTarget(c.Target)
			require.NoError(t, err)
			targets = append(targets, target)
		}
		require.Equal(t, flashplan.SwitchBundle(), targets, p.ID)
	}
	require.Positive(t, bundles)
}

// What manifests resolve to is what the plan takes.
func TestSwitchComponentsOfManifests(t *testing.T) {
	for _, typ := range node.Types() {
		if typ.Family != node.FamilySwitch {
			continue
		}
		for _, key := range manifest.Keys(typ) {
			_, err := flashplan.SwitchTarget(key)
			require.NoError(t, err, key)
		}
	}
}

func TestSwitchPlan(t *testing.T) {
	const gb200 = "switch_gb200_nvidia"
	plan := func(targets ...flashplan.Target) ([]flashplan.Group, error) {
		return flashplan.Plan(gb200, targets, flashplan.Options{Activate: true})
	}
	groups, err := plan(flashplan.Target{Component: "bios", File: "a.fwpkg"}, flashplan.Target{Component: "bmc", File: "b.fwpkg"})
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.True(t, groups[0].Activate)
	require.Equal(t, []int{0, 1}, []int{groups[0].Items[0].Index, groups[0].Items[1].Index}, "the order of the request stands")

	_, err = plan(flashplan.Target{File: "nvos-amd64-25.02.4440.bin"})
	require.NoError(t, err)
	for text, targets := range map[string][]flashplan.Target{
		"names no component of a switch": {{Component: "/redfish/v1/Chassis/x", File: "a"}},
		"by itself":                      {{File: "nvos-amd64-25.02.4440.bin"}, {Component: "bmc", File: "b.fwpkg"}},
	} {
		_, err := plan(targets...)
		var refused *flashplan.Error
		require.ErrorAs(t, err, &refused)
		require.Equal(t, job.FailureInvalidArgument, refused.Code)
		require.ErrorContains(t, err, text)
	}
	require.True(t, flashplan.IsSwitchImage("prod/NVOS-amd64-25.9.1.bin"))
	require.False(t, flashplan.IsSwitchImage("nvfw_nvos.fwpkg"))
	require.True(t, flashplan.TakesBundle("switch_vrnvl72_nvidia"))
	require.False(t, flashplan.TakesBundle(gb200))
}
