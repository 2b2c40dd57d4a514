// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"archive/tar"
	"bytes"
	"context"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func entries(names ...string) []redfish.FirmwareItem {
	var out []redfish.FirmwareItem
	for _, name := range names {
		out = append(out, redfish.FirmwareItem{
			Name: name, URI: "/redfish/v1/UpdateService/FirmwareInventory/" + name, Version: "old",
		})
	}
	return out
}

func TestExpectedVersions(t *testing.T) {
	tray, ok := redfish.LookupProfile("compute_gb200_nvidia")
	require.True(t, ok)
	shelf, ok := redfish.LookupProfile("powershelf_gb200_liteon")
	require.True(t, ok)
	inventory := entries("FW_BMC_0", "FW_CPLD_0", "FW_ERoT_BMC_0", "HGX_FW_BMC_0", "HGX_FW_CPU_0", "HGX_FW_CPU_1",
		"HGX_FW_GPU_0", "HGX_FW_GPU_1", "HGX_InfoROM_GPU_0", "HGX_FW_ERoT_CPU_0", "HGX_PCIeSwitchConfig_0", "HGX_FW_FPGA_0")
	content := func(version string, images ...string) *packageContent {
		p := redfish.PackageVersions{Version: version}
		for _, i := range images {
			name, v, _ := strings.Cut(i, "=")
			p.Components = append(p.Components, redfish.PackageComponent{Name: name, Version: v})
		}
		return &packageContent{packages: []redfish.PackageVersions{p}}
	}
	for _, tt := range []struct {
		name      string
		profile   redfish.Profile
		inventory []redfish.FirmwareItem
		component string
		version   string
		file      string
		content   *packageContent
		want      map[string]string
		complete  bool
	}{
		{name: "raw image", file: "obmc.bin"},
		{name: "raw image with a version", component: "FW_BMC_0", version: "9", want: map[string]string{"FW_BMC_0": "9"}, complete: true},
		{name: "by URI", component: "/redfish/v1/UpdateService/FirmwareInventory/HGX_FW_GPU_1", version: "9",
			want: map[string]string{"HGX_FW_GPU_1": "9"}, complete: true},
		{name: "the tray's controller", component: "BMC", version: "9", want: map[string]string{"FW_BMC_0": "9"}, complete: true},
		{name: "the baseboard's controller", component: "HMC", version: "9", want: map[string]string{"HGX_FW_BMC_0": "9"}, complete: true},
		{name: "component that is not there", component: "FW_X_0", version: "9", want: map[string]string{"FW_X_0": "9"}, complete: true},
		{name: "version of a whole package", component: tray.HMCTarget, version: "9"},
		{name: "both halves in one package", content: &packageContent{packages: append(append(content("p").packages,
			content("HGX-1", "HMC=3", "GPU=2").packages...), content("DGX-1", "BMC=1").packages...)},
			want: map[string]string{"FW_BMC_0": "1", "HGX_FW_BMC_0": "3", "HGX_FW_GPU_0": "2", "HGX_FW_GPU_1": "2"}, complete: true},
		{name: "single image for a component", component: "FW_CPLD_0", content: content("p", "anything=9"),
			want: map[string]string{"FW_CPLD_0": "9"}, complete: true},
		{name: "tray package", content: content("GB200-P4972", "BMC=9", "ERoT=8"), complete: true,
			want: map[string]string{"FW_BMC_0": "9", "FW_ERoT_BMC_0": "8"}},
		{name: "baseboard package by its file", file: "nvfw_GB200-P4975_1.fwpkg", complete: true,
			content: content("p", "HMC=1", "GPU=2", "SBIOS=3", "ERoT=4", "PCIeSwitchConfig=5", "SMR=6"),
			want: map[string]string{"HGX_FW_BMC_0": "1", "HGX_FW_GPU_0": "2", "HGX_FW_GPU_1": "2", "HGX_FW_CPU_0": "3",
				"HGX_FW_CPU_1": "3", "HGX_FW_ERoT_CPU_0": "4", "HGX_PCIeSwitchConfig_0": "5", "HGX_FW_FPGA_0": "6"}},
		{name: "baseboard package by its version", content: content("HGX-1", "BMC=1"), want: map[string]string{"HGX_FW_BMC_0": "1"}, complete: true},
		{name: "baseboard package by an image", content: content("p", "HGX_FW_GPU_1=1"), want: map[string]string{"HGX_FW_GPU_1": "1"}, complete: true},
		{name: "baseboard package by its target", component: "HMC", content: content("p", "GPU_0=1"), want: map[string]string{"HGX_FW_GPU_0": "1"}, complete: true},
		{name: "exact name wins", content: content("HGX", "GPU=1", "HGX_FW_GPU_0=2"), complete: true,
			want: map[string]string{"HGX_FW_GPU_0": "2", "HGX_FW_GPU_1": "1"}},
		{name: "image without a component", content: content("p", "BMC=9", "DPU=1"), want: map[string]string{"FW_BMC_0": "9"}},
		{name: "image without a name", content: content("p", "=9")},
		{name: "boards differ", content: content("p", "CPLD=1", "CPLD=2", "BMC=9"), want: map[string]string{"FW_BMC_0": "9", "FW_CPLD_0": ""}},
		{name: "same version for all boards", content: content("p", "CPLD=1", "CPLD=1"), want: map[string]string{"FW_CPLD_0": "1"}, complete: true},
		{name: "image without a version", content: content("p", "BMC="), want: map[string]string{"FW_BMC_0": ""}},
		{name: "shelf controller", profile: shelf, inventory: entries("mcu", "pmc_5c3f81d0", "powerdevice0"), content: content("1", "PMC=1"),
			want: map[string]string{"pmc_5c3f81d0": "1"}, complete: true},
		{name: "shelf MCU", profile: shelf, inventory: entries("mcu", "pmc_5c3f81d0"), content: content("1", "MCU=1"),
			want: map[string]string{"mcu": "1"}, complete: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.profile.NodeType == "" {
				tt.profile, tt.inventory = tray, inventory
			}
			plan, err := flashplan.Plan(tt.profile.NodeType, []flashplan.Target{{Component: tt.component, File: tt.file}}, flashplan.Options{})
			require.NoError(t, err)
			c, err := redfish.New(redfish.Endpoint{Address: "127.0.0.1", Username: "u", Password: secret.New("p")},
				redfish.Options{Profile: tt.profile, Guard: freeGuard{}, Pool: redfish.NewPool(redfish.PoolOptions{})})
			require.NoError(t, err)
			p := &pkgStages{
				u:    &update{c: c, state: updateState{Targets: []targetState{{HMC: plan[0].Items[0].Send.Baseboard || tt.content.forHMC()}}}},
				item: plan[0].Items[0], target: &rackbusv1.FirmwareUpdateTarget{Component: tt.component, ExpectedVersion: tt.version},
			}
			got, err := p.expected(t.Context(), tt.content, tt.inventory)
			require.NoError(t, err)
			versions := map[string]string{}
			for _, v := range got.versions {
				versions[path.Base(v.Name)] = v.Version
			}
			if tt.want == nil {
				tt.want = map[string]string{}
			}
			require.Equal(t, tt.want, versions)
			require.Equal(t, tt.complete, got.complete)
		})
	}
}

// freeGuard lets everything through; nothing is sent here.
type freeGuard struct{}

func (freeGuard) Check() error { return nil }

func (freeGuard) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func shelfArchive(t testing.TB, manifest string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "MANIFEST", Mode: 0o600, Size: int64(len(manifest)), Format: tar.FormatUSTAR}))
	_, err := w.Write([]byte(manifest))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// What a shelf archive says of itself decides whether supplies get it.
func TestArchiveContent(t *testing.T) {
	for purpose, want := range map[string]string{
		"LITEON-PSU": imageSupplies, "xyz.openbmc_project.Software.Version.VersionPurpose.BMC": imageController, "MCU": imageMCU,
	} {
		b := shelfArchive(t, "purpose="+purpose+"\nversion=F1F1\nmodel=x\n")
		content, err := readContent(bytes.NewReader(b), int64(len(b)))
		require.NoError(t, err, purpose)
		require.Equal(t, []redfish.PackageComponent{{Name: want, Version: "F1F1"}}, content.packages[0].Components)
		require.Equal(t, want == imageSupplies, content.forSupplies())
	}
}

func FuzzContent(f *testing.F) {
	f.Add(shelfArchive(f, "purpose=LITEON-PSU\nversion=F1F1\nmodel=x\n"))
	f.Add([]byte("no package"))
	f.Fuzz(func(t *testing.T, b []byte) {
		content, err := readContent(bytes.NewReader(b), int64(len(b)))
		if err == nil && content != nil {
			content.forHMC()
			content.forSupplies()
		}
	})
}

func TestSummarise(t *testing.T) {
	require.Equal(t, "a b c", summarise(" a\n\tb  c "))
	long := summarise(strings.Repeat("é", summaryLimit))
	require.LessOrEqual(t, len(long), summaryLimit)
	require.True(t, strings.HasSuffix(long, "..."))
}
