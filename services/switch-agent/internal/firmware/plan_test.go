// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

func TestIsFor(t *testing.T) {
	for _, tt := range []struct {
		name, target string
		want         bool
	}{
		{"BMC", "BMC", true}, {"FW_BMC_0", "BMC", true}, {"ERoT_BMC", "BMC", false}, {"ERoT_BMC", "EROT", true},
		{"MGX_FW_ERoT_FPGA_0", "EROT", true}, {"MGX_FW_ERoT_FPGA_0", "FPGA", false}, {"FPGA", "FPGA", true}, {"SMR", "FPGA", true},
		{"SBIOS", "BIOS", true}, {"BIOS", "BIOS", true}, {"CPLD1", "CPLD1", true}, {"CPLD", "CPLD1", true}, {"FW_CPLD_3", "CPLD1", true},
		{"SMA", "SMA", true}, {"SMALL", "SMA", false}, {"", "BMC", false},
	} {
		require.Equal(t, tt.want, isFor(tt.name, tt.target), "%s for %s", tt.name, tt.target)
	}
}

func TestVersionIn(t *testing.T) {
	build := func(components ...firmwarepackage.Component) *bytes.Reader {
		raw, err := firmwarepackage.Build(firmwarepackage.Spec{Version: "x", Components: components})
		require.NoError(t, err)
		return bytes.NewReader(raw)
	}
	r := build(
		firmwarepackage.Component{Name: "BMC", Version: "1"}, firmwarepackage.Component{Name: "ERoT_BMC", Version: "2"},
		firmwarepackage.Component{Name: "ERoT_FPGA", Version: "3"}, firmwarepackage.Component{Name: "FPGA", Version: "4"},
	)
	require.Equal(t, "1", versionIn(r, r.Size(), "BMC"))
	require.Equal(t, "4", versionIn(r, r.Size(), "FPGA"))
	require.Empty(t, versionIn(r, r.Size(), "EROT"), "two versions are none")
	require.Empty(t, versionIn(r, r.Size(), "SMA"))
	raw := bytes.NewReader(bytes.Repeat([]byte("x"), 2048))
	require.Empty(t, versionIn(raw, raw.Size(), "BMC"))
	_, err := targetsIn(raw, raw.Size())
	require.ErrorContains(t, err, "name the component")
}

func TestImageBuild(t *testing.T) {
	for file, want := range map[string]string{
		"nvos-amd64-25.02.4440.bin": "nvos-25.02.4440", "nvos-25.01.2434-013.bin": "nvos-25.01.2434-013", "nvos.bin": "",
	} {
		require.Equal(t, want, imageBuild(file))
	}
}

func TestFolders(t *testing.T) {
	for target, want := range map[string]string{
		"BMC": "/host/fw-images/bmc", "CPLD1": "/host/fw-images/cpld", "TRANSCEIVER": "/host/fw-images/transceiver",
	} {
		require.Equal(t, want, folder(target))
	}
}

// Every stage belongs to a phase that callers know.
func TestPhases(t *testing.T) {
	for stage, want := range map[string]string{
		"artifacts": phasePlanning, "check": phaseValidation, "asic": phaseValidation, "bundle_upload": phaseUpdate,
		"bundle_monitor": phasePoll, "upload_2": phaseUpdate, "install_1": phaseUpdate, "monitor": phasePoll, "outcome": phasePoll,
		"activate": phaseActivation, "activate_bmc_wait": phaseActivation, "verify": phaseVerify, phaseVerify: phaseVerify, "other": "other",
	} {
		require.Equal(t, want, phaseOf(stage), stage)
	}
}
