// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// A component that is off, or starts, must not read as one that has changed: that
// would count as proof of a power cycle or of an update.
func TestChangedNeedsTwoReadings(t *testing.T) {
	before := map[string]string{"HGX_FW_GPU_0": "1.0", "FW_BMC_0": "2.0", "FW_CPLD_0": ""}
	read := func(name, version string) []redfish.FirmwareItem {
		return []redfish.FirmwareItem{{Name: name, Version: version}}
	}
	for _, silent := range []string{"", " ", "N/A", "n/a", "Unknown"} {
		require.False(t, changed(before, read("HGX_FW_GPU_0", silent), ""), "%q", silent)
	}
	require.False(t, changed(before, read("HGX_FW_GPU_0", "1.0"), ""))
	require.False(t, changed(before, read("FW_CPLD_0", "3.0"), ""), "it was silent before")
	require.False(t, changed(before, read("FW_NEW_0", "3.0"), ""), "it was not there before")
	require.True(t, changed(before, read("HGX_FW_GPU_0", "1.1"), ""))
	require.True(t, changed(before, read("FW_BMC_0", "2.1"), "/redfish/v1/UpdateService/FirmwareInventory/FW_BMC_0"))
	require.False(t, changed(before, read("HGX_FW_GPU_0", "1.1"), "FW_BMC_0"))
}
