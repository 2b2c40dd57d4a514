// SPDX-License-Identifier: Apache-2.0

package flash_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
)

func TestFile(t *testing.T) {
	nosbios := flash.File{Suffix: ".fwpkg", Word: "nosbios"}
	require.True(t, nosbios.Fits("GB300_NoSBIOS_1.FWPKG"))
	require.False(t, nosbios.Fits("nosbios.bin"))
	require.False(t, nosbios.Fits("a.fwpkg"))
	require.True(t, flash.File{}.Fits("anything"))
}

// An item is a value: what is made of it leaves it as it is.
func TestItemsAreValues(t *testing.T) {
	item := flash.ByContent(flash.ToBaseboard())
	forced := item.Forced(true)
	require.Equal(t, flash.Send{}, item.Send)
	require.Equal(t, flash.Send{Force: true}, forced.Send)
	require.Equal(t, flash.Send{Targets: []string{flash.BaseboardPath}, Baseboard: true}, item.ForBaseboard().Send)
	require.Equal(t, flash.Send{Targets: []string{flash.BaseboardPath}, Baseboard: true, Force: true}, forced.ForBaseboard().Send)
	named := flash.Item{Send: flash.To(flash.InventoryPath + "HGX_FW_CPU_0")}
	require.Equal(t, named, named.ForBaseboard())
	require.True(t, named.Send.Baseboard)
	require.Equal(t, named.Send.Targets, named.Send.Scope)
	require.Empty(t, flash.To("/redfish/v1/Chassis/Other").Scope)
}

func TestRefusals(t *testing.T) {
	for precondition, err := range map[bool]error{
		false: flash.Invalid("takes %s", "BMC"), true: flash.Precondition("needs %s", "activate"),
	} {
		refused, ok := errors.AsType[*flash.Refusal](err)
		require.True(t, ok)
		require.Equal(t, precondition, refused.Precondition)
	}
	require.EqualError(t, flash.Invalid("takes %s", "BMC"), "takes BMC")
}
