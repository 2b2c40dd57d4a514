// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

func TestCompareVersions_E24(t *testing.T) {
	t.Parallel()
	inventory := []redfish.FirmwareItem{
		{Name: "FW_BMC_0", URI: inventoryURI + "/FW_BMC_0", Version: " GB200-25.06 "},
		{Name: "HGX_FW_GPU_0", URI: inventoryURI + "/HGX_FW_GPU_0", Version: "97.00"},
	}
	for _, c := range []struct {
		name     string
		expected redfish.ExpectedVersion
		want     redfish.VersionStatus
	}{
		{"same but for case and blanks", redfish.ExpectedVersion{Name: "fw_bmc_0", Version: "gb200-25.06"}, redfish.VersionMatched},
		{"by URI", redfish.ExpectedVersion{Name: inventoryURI + "/HGX_FW_GPU_0", Version: "97.00"}, redfish.VersionMatched},
		{"differs", redfish.ExpectedVersion{Name: "FW_BMC_0", Version: "GB200-25.07"}, redfish.VersionMismatch},
		{"absent", redfish.ExpectedVersion{Name: "FW_CPLD_0", Version: "1"}, redfish.VersionMismatch},
		{"renamed", redfish.ExpectedVersion{Name: "HGX_FW_BMC_0", Aliases: []string{"FW_BMC_0"}, Version: "GB200-25.06"}, redfish.VersionMatched},
		{"no version", redfish.ExpectedVersion{Name: "FW_BMC_0", Version: "N/A"}, redfish.VersionUnverified},
	} {
		report := redfish.CompareVersions([]redfish.ExpectedVersion{c.expected}, inventory)
		require.Equal(t, c.want, report.Status, c.name)
		require.Equal(t, c.want == redfish.VersionMismatch, report.Err() != nil, c.name)
	}
	require.Equal(t, redfish.VersionUnverified, redfish.CompareVersions(nil, inventory).Status)
}

func TestVersionErrorNamesFive(t *testing.T) {
	t.Parallel()
	var expected []redfish.ExpectedVersion
	for _, n := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		expected = append(expected, redfish.ExpectedVersion{Name: n, Version: "2"})
	}
	report := redfish.CompareVersions(expected, []redfish.FirmwareItem{{Name: "a", Version: "1"}})
	text := report.Err().Error()
	require.True(t, strings.HasPrefix(text, "a: expected 2, found 1; b: expected 2, found none; "), text)
	require.True(t, strings.HasSuffix(text, "; and 2 more"), text)
	raw, err := json.Marshal(report)
	require.NoError(t, err)
	require.Contains(t, string(raw), `{"name":"a","inventory_path":"","system_version":"1","package_version":"2","status":"mismatch","reason":"versions differ"}`)
}
