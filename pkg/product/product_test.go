// SPDX-License-Identifier: Apache-2.0

package product_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/product"
)

// Each row is named after what it says, once, and names what nodes of its type
// take. What the other parts of a row need is tested where they are used.
func TestRowsAreWhole(t *testing.T) {
	ids, numbers := map[string]bool{}, map[int32]bool{}
	for _, p := range product.All() {
		require.Equal(t, string(p.Family)+"_"+p.Generation.ID+"_"+p.Vendor.ID, p.ID)
		require.False(t, ids[p.ID], "%s twice", p.ID)
		ids[p.ID] = true
		require.False(t, p.Number != 0 && numbers[p.Number], "number %d twice", p.Number)
		numbers[p.Number] = true
		require.Contains(t, []product.Family{product.Compute, product.Switch, product.PowerShelf}, p.Family, p.ID)
		require.Equal(t, "NVL_"+strings.ToUpper(p.Generation.ID), string(p.Generation.Rack), p.ID)
		require.NotEmpty(t, p.Vendor.Brand, p.ID)
		require.NotEmpty(t, p.Redfish.Power, p.ID)
		require.NotEmpty(t, p.Components, p.ID)

		found, ok := product.ByID(p.ID)
		require.True(t, ok)
		require.Equal(t, p.Components, found.Components)
	}
	_, ok := product.ByID("toaster")
	require.False(t, ok)
}

func TestComponents(t *testing.T) {
	for _, p := range product.All() {
		seen := map[[3]string]bool{}
		for _, c := range p.Components {
			require.NotEmpty(t, c.Source, p.ID)
			require.NotEmpty(t, c.Key, p.ID)
			step := [3]string{c.Source, c.Key, c.Target}
			require.False(t, seen[step], "%s: %s twice", p.ID, step)
			seen[step] = true
			// Somewhere a comparison has to find the version, except where nothing shows it.
			shown := !c.InBand && p.Family != product.Switch
			require.Equal(t, shown, len(c.Installed) > 0, "%s: %s", p.ID, c.Key)
		}
		inBand := slices.ContainsFunc(p.Components, func(c product.Component) bool { return c.InBand })
		require.Equal(t, p.InBand, inBand, "%s: its network devices", p.ID)
		if p.Bundle {
			for _, c := range p.Components {
				require.Equal(t, p.Components[0].Source, c.Source, "%s: one package brings all", p.ID)
			}
		}
		if p.Family == product.Compute {
			last := p.Components[len(p.Components)-1]
			require.Equal(t, product.SourceBMC, last.Source, "%s: the controller restarts, so it comes last", p.ID)
			require.Equal(t, product.SourceHMC, p.Components[0].Source, p.ID)
		}
	}
}

// Whoever gets the table cannot change it for others.
func TestAllIsACopy(t *testing.T) {
	first := product.All()[0].ID
	product.All()[0].ID = "toaster"
	require.Equal(t, first, product.All()[0].ID)
}

func TestNamesForPeople(t *testing.T) {
	p, ok := product.ByID("compute_gb300_supermicro")
	require.True(t, ok)
	require.Equal(t, "Supermicro GB300", p.Title())
	require.Equal(t, "power_shelf", product.PowerShelf.Role())
	require.Equal(t, "switch", product.Switch.Role())
	require.Equal(t, []string{"LiteOn", "Delta"}, product.Brands(product.PowerShelf))
}

func TestParts(t *testing.T) {
	parts := product.Parts()
	require.Len(t, parts, 20)
	require.Equal(t, product.Part{Key: "CPU_0", Entry: "HGX_FW_CPU_0"}, parts[0])
	require.Equal(t, product.Part{Key: "PCIE_SWITCH_CONFIG_0", Entry: "HGX_PCIeSwitchConfig_0"}, parts[19])
	require.True(t, product.StepAuxCycle.Once())
	require.True(t, product.StepManagerReset.Once())
	require.False(t, product.StepPowerOn.Once())
}
