// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

func TestF1InventoryDecodesLeniently(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(inventoryURI, ok(members(inventoryURI+"/a", inventoryURI+"/b", inventoryURI+"/c")))
	b.on(inventoryURI+"/a", ok(`{"Id":"FW_BMC_0","Version":" 25.06 ","Updateable":"true","WriteProtected":false,
		"Status":"N/A","RelatedItem":{"@odata.id":"/redfish/v1/Chassis/BMC_0"},"SoftwareId":16}`))
	b.on(inventoryURI+"/b", ok(`{"Name":"UEFI","Version":12.5,"Updateable":1,"Status":{"Health":null},"RelatedItem":["/x",{"@odata.id":"/y"},7]}`))
	b.on(inventoryURI+"/c", ok(`{"Id":{},"Version":["N/A"],"Status":{"Health":"Warning"},"SKU":null}`))
	items, err := b.client(gb200).FirmwareInventory(t.Context())
	require.NoError(t, err)
	require.Len(t, items, 3)
	protected := false
	require.Equal(t, redfish.FirmwareItem{Name: "FW_BMC_0", URI: inventoryURI + "/a", Version: " 25.06 ", SoftwareID: "16",
		Updateable: true, WriteProtected: &protected, Health: "Unknown", Type: redfish.FirmwareBMC,
		RelatedItems: []string{"/redfish/v1/Chassis/BMC_0"}}, items[0])
	require.Equal(t, "UEFI", items[1].Name)
	require.Equal(t, "12.5", items[1].Version)
	require.True(t, items[1].Updateable)
	require.Equal(t, redfish.FirmwareBIOS, items[1].Type)
	require.Equal(t, []string{"/x", "/y"}, items[1].RelatedItems)
	require.Equal(t, "c", items[2].Name)
	require.Empty(t, items[2].Version)
	require.EqualValues(t, "Warning", items[2].Health)
	require.Nil(t, items[2].WriteProtected)
}

func TestInventoryWithOneBadMember(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(inventoryURI, ok(members(inventoryURI+"/a", inventoryURI+"/b", inventoryURI+"/c")))
	b.on(inventoryURI+"/a", ok(`{"Id":"a"}`))
	b.on(inventoryURI+"/b", reply(500, ""))
	b.on(inventoryURI+"/c", ok(`{"Id":"c"}`))
	items, err := b.client(gb200).FirmwareInventory(t.Context())
	require.Len(t, items, 2, "the others are read")
	failed, is := errors.AsType[*redfish.InventoryError](err)
	require.True(t, is)
	require.Len(t, failed.Members, 1)
	require.Equal(t, inventoryURI+"/b", failed.Members[0].URI)
	require.Contains(t, err.Error(), "b: ")
	require.Equal(t, redfish.CodeInternal, redfish.CodeOf(failed.Members[0].Err))
}

func TestEmbeddedInventory(t *testing.T) {
	t.Parallel()
	embedded := func(names ...string) string {
		list := ""
		for _, n := range names {
			list += `,{"DataSourceUri":"` + inventoryURI + "/" + n + `","Name":"` + n + `","Version":"e-` + n + `"}`
		}
		return `{"Members":[{"@odata.id":"` + inventoryURI + `/a"},{"@odata.id":"` + inventoryURI + `/b"}],"Oem":{"Ami":{"FirmwareInventory":[5` + list + `]}}}`
	}
	t.Run("complete", func(t *testing.T) {
		b := newBMC(t)
		b.on(inventoryURI, ok(embedded("a", "b")))
		items, err := b.client(gb200).FirmwareInventory(t.Context())
		require.NoError(t, err)
		require.Len(t, items, 2)
		require.Equal(t, "e-b", items[1].Version)
		require.Len(t, b.requests("GET", "/"), 1)
	})
	t.Run("fills gaps", func(t *testing.T) {
		b := newBMC(t)
		b.on(inventoryURI, ok(embedded("b")))
		b.on(inventoryURI+"/a", ok(`{"Id":"a","Version":"own"}`))
		b.on(inventoryURI+"/b", reply(503, ""))
		items, err := b.client(gb200).FirmwareInventory(t.Context())
		require.NoError(t, err)
		require.Equal(t, "own", items[0].Version)
		require.Equal(t, "e-b", items[1].Version)
	})
}

func TestInventoryCollections(t *testing.T) {
	t.Parallel()
	t.Run("empty", func(t *testing.T) {
		b := newBMC(t)
		b.on(inventoryURI, ok(`{"Members":[]}`))
		_, err := b.client(gb200).FirmwareInventory(t.Context())
		require.ErrorIs(t, err, redfish.ErrEmptyInventory)
		require.Equal(t, redfish.CodeUnavailable, redfish.CodeOf(err))
	})
	t.Run("pages", func(t *testing.T) {
		b := newBMC(t)
		b.on(inventoryURI, ok(`{"Members":[{"@odata.id":"`+inventoryURI+`/a"}],"Members@odata.nextLink":"/page2"}`))
		b.on("/page2", ok(members(inventoryURI+"/b")))
		b.on(inventoryURI+"/a", ok(`{"Id":"a"}`))
		b.on(inventoryURI+"/b", ok(`{"Id":"b"}`))
		items, err := b.client(gb200).FirmwareInventory(t.Context())
		require.NoError(t, err)
		require.Len(t, items, 2)
	})
	t.Run("pages in circles", func(t *testing.T) {
		b := newBMC(t)
		b.on(inventoryURI, ok(`{"Members":[],"Members@odata.nextLink":"`+inventoryURI+`"}`))
		_, err := b.client(gb200).FirmwareInventory(t.Context())
		require.Equal(t, redfish.CodeInvalidResponse, redfish.CodeOf(err))
	})
	t.Run("members off the device are skipped", func(t *testing.T) {
		b := newBMC(t)
		b.on(inventoryURI, ok(members("https://evil.example/a", inventoryURI+"/b")))
		b.on(inventoryURI+"/b", ok(`{"Id":"b"}`))
		items, err := b.client(gb200).FirmwareInventory(t.Context())
		require.NoError(t, err)
		require.Len(t, items, 1)
	})
}

func TestFirmwareTypes(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]redfish.FirmwareType{
		"HGX_FW_BMC_0": redfish.FirmwareBMC, "HGX_SBIOS_0": redfish.FirmwareBIOS, "FW_CPLD_0": redfish.FirmwareCPLD,
		"FW_SMR_1": redfish.FirmwareFPGA, "NIC_0": redfish.FirmwareNIC, "HBA": redfish.FirmwareHBA,
		"HGX_FW_GPU_0": redfish.FirmwareHMC, "powerdevice0": redfish.FirmwareUnknown,
	} {
		b := newBMC(t)
		b.on(inventoryURI, ok(members(inventoryURI+"/"+name)))
		b.on(inventoryURI+"/"+name, ok(`{"Id":"`+name+`"}`))
		items, err := b.client(gb200).FirmwareInventory(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, items[0].Type, name)
	}
}

// topology serves a baseboard whose second GPU has this topology.
func (b *bmc) topology(value string) {
	const base = "/redfish/v1/Systems/HGX_Baseboard_0"
	b.on("/redfish/v1/Systems", ok(members(systemURI, base)))
	b.on(systemURI, reply(500, ""))
	b.on(base, ok(`{"Processors":{"@odata.id":"`+base+`/Processors"}}`))
	b.on(base+"/Processors", ok(members(base+"/Processors/GPU_0", base+"/Processors/GPU_1")))
	b.on(base+"/Processors/GPU_0", reply(503, ""))
	b.on(base+"/Processors/GPU_1", ok(`{"Id":"GPU_1","Oem":{"Nvidia":`+value+`}}`))
}

func TestDeviceInfo(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.topology(`{"MNNVLinkTopology":{"ChassisSerialNumber":"1700000000042","TraySlotNumber":24,"TraySlotIndex":"14"}}`)
	info, err := b.client(gb200).DeviceInfo(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1700000000042, *info.ChassisSerial)
	require.EqualValues(t, 24, *info.SlotNumber)
	require.EqualValues(t, 14, *info.TrayIndex)
	require.Empty(t, b.requests("GET", systemURI), "the baseboard is looked at first")

	b.topology(`{"MNNVLinkTopology":{"ChassisSerialNumber":"MX-77","TraySlotNumber":-1,"TraySlotIndex":"N/A"}}`)
	info, err = b.client(gb200).DeviceInfo(t.Context())
	require.NoError(t, err)
	require.Equal(t, redfish.DeviceInfo{}, info)

	b.topology(`{"MNNVLinkTopology":"no"}`)
	_, err = b.client(gb200).DeviceInfo(t.Context())
	require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))

	b.topology(`{}`)
	_, err = b.client(gb200).DeviceInfo(t.Context())
	require.Equal(t, redfish.CodeUnavailable, redfish.CodeOf(err), "the first error that was stepped over")

	b.on("/redfish/v1/Systems", ok(members()))
	_, err = b.client(gb200).DeviceInfo(t.Context())
	require.ErrorIs(t, err, redfish.ErrNoDeviceInfo)
	require.Equal(t, redfish.CodeNotFound, redfish.CodeOf(err))
}
