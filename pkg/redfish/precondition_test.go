// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

const chassisURI = "/redfish/v1/Chassis"

func TestCheckWritable(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(inventoryURI, ok(members(inventoryURI+"/a", inventoryURI+"/b", inventoryURI+"/c", inventoryURI+"/d")))
	b.on(inventoryURI+"/a", ok(`{"WriteProtected":false}`))
	b.on(inventoryURI+"/b", ok(`{}`))
	b.on(inventoryURI+"/c", reply(500, ""))
	b.on(inventoryURI+"/d", ok(`{"WriteProtected":"N/A"}`))
	c := b.client(gb200)
	require.NoError(t, c.CheckWritable(t.Context()), "a chassis that is not there passes")

	b.on(inventoryURI+"/d", ok(`{"WriteProtected":true}`))
	err := c.CheckWritable(t.Context())
	protect, is := errors.AsType[*redfish.WriteProtectError](err)
	require.True(t, is)
	require.Equal(t, []string{inventoryURI + "/d"}, protect.Components)
	require.ErrorContains(t, err, "1 component(s): "+inventoryURI+"/d WriteProtected=true")

	b.on(chassisURI+"/Chassis_0", ok(`{"Oem":{"Nvidia":{"HardwareWriteProtectEnable":true}}}`))
	protect, is = errors.AsType[*redfish.WriteProtectError](c.CheckWritable(t.Context()))
	require.True(t, is)
	require.Equal(t, chassisURI+"/Chassis_0", protect.Hardware)

	b.on(chassisURI+"/Chassis_0", ok(`{"Oem":{"Nvidia":{"HardwareWriteProtectEnable":false}}}`))
	b.on(inventoryURI, reply(503, ""))
	before := len(b.requests("GET", inventoryURI))
	require.Equal(t, redfish.CodeUnavailable, redfish.CodeOf(c.CheckWritable(t.Context())))
	require.Len(t, b.requests("GET", inventoryURI), before+3)
	b.on(inventoryURI, ok(`{}`))
	require.Equal(t, redfish.CodeInvalidResponse, redfish.CodeOf(c.CheckWritable(t.Context())))
}

func TestExpectedInventory(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(inventoryURI, ok(`{"Members":[{"@odata.id":"`+inventoryURI+`/FW_BMC_0"},{"@odata.id":"`+inventoryURI+`/UEFI"}],
		"Oem":{"X":{"FirmwareInventory":[{"Name":"NIC_0","Version":"1"},{"DataSourceUri":"`+inventoryURI+`/HGX_FW_CPU_0","Name":"for people"},{"Name":"fw_bmc_0"},7]}}}`))
	c := b.client(gb200)
	require.NoError(t, c.ExpectedInventory(t.Context(), []string{"fw_bmc_0", " nic_0 ", "HGX_FW_CPU_0", ""}))
	require.NoError(t, c.ExpectedInventory(t.Context(), nil))

	err := c.ExpectedInventory(t.Context(), []string{"HGX_FW_GPU_1", "FW_BMC_0", "HGX_FW_GPU_0"})
	require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(err))
	lacking, is := errors.AsType[*redfish.ExpectedInventoryError](err)
	require.True(t, is)
	require.Equal(t, []string{"HGX_FW_GPU_0", "HGX_FW_GPU_1"}, lacking.Missing)
	require.Equal(t, []string{"FW_BMC_0", "HGX_FW_CPU_0", "NIC_0", "UEFI"}, lacking.Present)
	require.EqualError(t, err, "pre-update expected inventory check: expected firmware inventory APs were not present: "+
		"HGX_FW_GPU_0, HGX_FW_GPU_1. Present APs: FW_BMC_0, HGX_FW_CPU_0, NIC_0, UEFI")
	require.Len(t, b.requests("GET", "/"), 3, "members are not read")

	b.on(inventoryURI, reply(503, ""))
	require.Equal(t, redfish.CodeUnavailable, redfish.CodeOf(c.ExpectedInventory(t.Context(), []string{"x"})))
}

func backgroundCopy(status string) string {
	return `{"Oem":{"Nvidia":{"BackgroundCopyStatus":"` + status + `"}}}`
}

func TestBackgroundCopy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.on(chassisURI, ok(members(chassisURI+"/plain", chassisURI+"/erot", chassisURI+"/done")))
		b.on(chassisURI+"/plain", ok(`{}`))
		b.on(chassisURI+"/done", reply(500, ""), ok(backgroundCopy("completed")))
		b.on(chassisURI+"/erot", ok(backgroundCopy("InProgress")), ok(backgroundCopy("InProgress")), ok(`{}`), reply(500, ""), ok(backgroundCopy("Completed")))
		var rounds []map[string]string
		started := time.Now()
		err := b.client(gb200, defaults).WaitBackgroundCopy(t.Context(), func(m map[string]string) { rounds = append(rounds, m) })
		require.NoError(t, err)
		require.Len(t, rounds, 4)
		require.Contains(t, rounds[0][chassisURI], "QueryFailed", "one unreadable chassis spoils the discovery")
		require.Equal(t, "InProgress", rounds[1][chassisURI+"/erot"])
		require.Equal(t, "Missing", rounds[2][chassisURI+"/erot"])
		require.Contains(t, rounds[3][chassisURI+"/erot"], "QueryFailed")
		require.Equal(t, 40*time.Second, time.Since(started))
		require.Len(t, b.requests("GET", chassisURI+"/done"), 2, "complete ones are not read again")
	})
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.on(chassisURI, ok(members(chassisURI+"/erot")))
		b.on(chassisURI+"/erot", ok(backgroundCopy("Pending")))
		started := time.Now()
		err := b.client(gb200, defaults).WaitBackgroundCopy(t.Context(), nil)
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
		require.Equal(t, 900*time.Second, time.Since(started))
		incomplete, is := errors.AsType[*redfish.BackgroundCopyError](err)
		require.True(t, is)
		require.Equal(t, "Pending", incomplete.Incomplete[chassisURI+"/erot"])
	})
}
