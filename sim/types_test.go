// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// of starts one device of a node type.
func of(t *testing.T, nodeType string) (*sim.Rack, *sim.Device, *client) {
	t.Helper()
	rack := start(t, sim.Options{NodeTypes: []sim.NodeTypeCount{{Type: nodeType, Count: 1}}})
	d := rack.Devices()[0]
	return rack, d, newClient(t, rack, d)
}

// everyType is the list of node types, which has to be complete.
var everyType = []string{
	"compute_gb200_nvidia", "compute_gb200_wiwynn", "compute_gb300_nvidia", "compute_gb300_lenovo",
	"compute_gb300_supermicro", "compute_vrnvl72_nvidia", "powershelf_gb200_liteon", "powershelf_gb200_delta",
	"powershelf_gb300_liteon", "powershelf_gb300_delta",
}

func TestTypeTable(t *testing.T) {
	t.Parallel()
	models := bmc.Models()
	require.Len(t, models, len(everyType))
	for i, name := range everyType {
		m, ok := bmc.ModelOf(name)
		require.True(t, ok, name)
		require.Equal(t, models[i], m)
		require.Equal(t, strings.ToUpper(name), m.NodeType())
		require.NotEqual(t, m.Compute(), m.Shelf(), name)
		attributes := m.Descriptor()
		require.Equal(t, m.Shelf(), attributes["role"] == "power_shelf", name)
		require.Equal(t, name, strings.ReplaceAll(attributes["role"], "_", "")+"_"+attributes["product_family"]+"_"+attributes["vendor"])
		require.Equal(t, strings.HasSuffix(name, "wiwynn") || strings.HasSuffix(name, "supermicro"), m.DescriptorOnly(), name)
	}
	_, ok := bmc.ModelOf("switch_gb200_nvidia")
	require.False(t, ok)
	require.NotEmpty(t, bmc.Model(99).NodeType())
}

// crawl reads a resource and all it links to, and returns every URI it has read.
func crawl(t *testing.T, c *client) map[string]reply {
	t.Helper()
	seen := map[string]reply{}
	var visit func(uri string)
	var links func(v any)
	links = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, member := range v {
				if uri, ok := member.(string); ok && (key == "@odata.id" || key == "@Redfish.ActionInfo") {
					visit(uri)
				}
				links(member)
			}
		case []any:
			for _, member := range v {
				links(member)
			}
		}
	}
	visit = func(uri string) {
		if _, ok := seen[uri]; ok {
			return
		}
		got := c.get(uri)
		require.Equal(t, 200, got.status, uri)
		require.Equal(t, uri, got.get("@odata.id"))
		seen[uri] = got
		links(got.doc)
	}
	visit(root)
	return seen
}

func TestTrees(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		entries []string
		uris    []string
		system  obj
	}{
		"compute_gb200_nvidia": {[]string{"FW_BMC_0", "HGX_FW_GPU_3", "UEFI"}, []string{root + "/Chassis/CPLD_0"},
			obj{"Manufacturer": "NVIDIA", "Model": "GB200 NVL"}},
		"compute_gb200_wiwynn": {[]string{"FW_BMC_0", "FW_BMC_1", "FW_ERoT_AP_CFG_0", "TPM_Firmware"}, nil,
			obj{"Manufacturer": "WIWYNN", "Model": "GB200 NVL"}},
		"compute_gb300_nvidia": {[]string{"SMA_0", "HGX_SXM_MCU_3"}, []string{root + "/Chassis/SMA_1"},
			obj{"Manufacturer": "NVIDIA", "Model": "GB300 NVL"}},
		"compute_gb300_lenovo":     {[]string{"BMC", "HGX_FW_BMC_0"}, nil, obj{"Manufacturer": "Lenovo", "Model": "HG634N_V2"}},
		"compute_gb300_supermicro": {[]string{"FW_BMC_0", "HGX_FW_CPU_0", "HGX_FW_CPU_1"}, nil, obj{"Manufacturer": "Supermicro"}},
		"compute_vrnvl72_nvidia": {[]string{"FW_CX_0", "FW_IO_Board_SMA_1", "FW_NVMe_E1S_3", "HGX_SBIOS_0"},
			[]string{root + "/Chassis/IO_Board_SMA_0", system + "/Storage/1/Drives/NVMe_E1S_0"}, obj{"Model": "VR NVL72"}},
		"powershelf_gb200_liteon": {[]string{"mcu", "powerdevice0", "powerdevice5"}, []string{root + "/Managers/bmc"}, nil},
		"powershelf_gb300_liteon": {[]string{"mcu"}, []string{root + "/Systems/system"}, nil},
		"powershelf_gb200_delta": {[]string{"FW_ERoT_BMC_0", "FW_PMC_primary", "FW_PMC_alt", "FW_PSU_1", "FW_PSU_6"},
			[]string{root + "/Managers/PMC_0", root + "/PowerEquipment/PowerShelves/1"}, nil},
		"powershelf_gb300_delta": {[]string{"FW_PSU_1"}, []string{root + "/Chassis/chassis/PowerSubsystem/PowerSupplies/6"}, nil},
	}
	require.Len(t, tests, len(everyType))
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			_, d, c := of(t, name)
			seen := crawl(t, c)
			for _, entry := range want.entries {
				require.Contains(t, seen, inventory+entry)
				require.Equal(t, d.Version(entry), seen[inventory+entry].get("Version"))
			}
			for _, uri := range want.uris {
				require.Contains(t, seen, uri)
			}
			for key, value := range want.system {
				require.Equal(t, value, seen[system].get(key), key)
			}
			managers := 0
			for uri, page := range seen {
				if strings.HasPrefix(uri, root+"/Managers/") && strings.Count(uri, "/") == 4 {
					managers++
					require.NotEmpty(t, page.get("FirmwareVersion"), uri)
					require.NotEmpty(t, page.get("Actions", "#Manager.Reset", "target"), uri)
				}
			}
			require.NotZero(t, managers)
		})
	}
}

func TestNodeTypesOption(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{
		Compute: 1, PowerShelves: 1, HostEndpoint: func(d *sim.Device) (*sim.HostEndpoint, error) {
			if d.ID() != "compute-0002" {
				return nil, nil
			}
			return &sim.HostEndpoint{Address: "127.0.0.9", Port: 2222, Username: "root", Password: "pw"}, nil
		},
		NodeTypes: []sim.NodeTypeCount{
			{Type: "powershelf_gb300_delta", Count: 1}, {Type: "COMPUTE_GB200_WIWYNN", Count: 2}, {Type: "compute_gb300_lenovo", Count: 0},
		},
	})
	var got []string
	for _, d := range rack.Devices() {
		got = append(got, d.ID()+" "+d.NodeType())
	}
	require.Equal(t, []string{
		"compute-0001 COMPUTE_GB200_NVIDIA", "compute-0002 COMPUTE_GB200_WIWYNN", "compute-0003 COMPUTE_GB200_WIWYNN",
		"powershelf-0001 POWERSHELF_GB200_LITEON", "powershelf-0002 POWERSHELF_GB300_DELTA",
	}, got)
	nodes := rack.NodeSet().Nodes
	text, err := json.Marshal(nodes[1])
	require.NoError(t, err)
	require.NotContains(t, string(text), `"type"`)
	require.Contains(t, string(text), `"nodeDescriptor":{"attributes":{"product_family":"gb200","role":"compute","vendor":"wiwynn"}}`)
	require.Contains(t, string(text), `"hostEndpoint":{"interface":{"ipAddress":"127.0.0.9"},"port":2222,`)
	require.Nil(t, nodes[0].HostEndpoint)
	require.Equal(t, 2222, rack.Device("compute-0002").Host().Port)
	require.Equal(t, "POWERSHELF_GB300_DELTA", nodes[4].Type)

	for _, bad := range []sim.NodeTypeCount{{Type: "toaster", Count: 1}, {Type: everyType[0], Count: -1}} {
		_, err := sim.Start(t.Context(), sim.Options{Compute: 3, NodeTypes: []sim.NodeTypeCount{bad}})
		require.ErrorIs(t, err, sim.ErrInvalidOption)
	}
	_, err = sim.Start(t.Context(), sim.Options{Compute: 1, HostEndpoint: func(*sim.Device) (*sim.HostEndpoint, error) {
		return nil, http.ErrServerClosed
	}})
	require.ErrorIs(t, err, http.ErrServerClosed)
}

// oemUpload is an upload with an OEM part.
func (c *client) oemUpload(parameters, name string, file []byte, oem string) reply {
	c.t.Helper()
	body, kind := multipartBody(c.t, parameters, name, file, oem)
	out, err := c.request(c.t.Context(), http.MethodPost, update+"/update-multipart", body, http.Header{"Content-Type": {kind}})
	require.NoError(c.t, err)
	return out
}

// auxCycle activates what is pending on a tray.
func (c *client) auxCycle() {
	c.t.Helper()
	require.Equal(c.t, 204, c.hostReset("ForceOff").status)
	require.Equal(c.t, 200, c.post(aux, obj{"ResetType": "AuxPowerCycle"}).status)
	c.awaitUp()
	require.Equal(c.t, 204, c.hostReset("On").status)
}

func preserve(on bool) obj {
	keep := obj{"SDR": false}
	for _, key := range []string{"Syslog", "NTP", "Network", "Authentication", "EXTLOG", "FRU", "IPMI", "KVM", "REDFISH", "SEL", "SNMP", "SSH", "WEB"} {
		keep[key] = on
	}
	return obj{"Oem": obj{"AMIUpdateService": obj{"@odata.type": "#AMIUpdateService.v1_0_0.AMIUpdateService", "PreserveConfiguration": keep}}}
}

func TestLenovo(t *testing.T) {
	t.Parallel()
	const pldmHGX, imageBMC = `{"ImageType":"PLDM","Platform":"HGX"}`, `{"ImageType":"BMC"}`
	ownTarget := targets(inventory + "BMC")
	raw := func(name string) []byte { return firmwarepackage.Raw(name, 500) }

	t.Run("systems are reversed", func(t *testing.T) {
		_, _, c := of(t, "compute_gb300_lenovo")
		require.Equal(t, []any{obj{"@odata.id": root + "/Systems/HGX_Baseboard_0"}, obj{"@odata.id": system}}, c.get(root+"/Systems").get("Members"))
	})
	t.Run("uploads need their OEM part", func(t *testing.T) {
		_, _, c := of(t, "compute_gb300_lenovo")
		for _, tt := range []struct{ parameters, name, oem string }{
			{noTargets, "hgx_2.fwpkg", ""},
			{targets(hgx), "hgx_2.fwpkg", pldmHGX},
			{noTargets, "bmc_2.ima", imageBMC},
			{ownTarget, "bmc_2.hpm", imageBMC},
			{ownTarget, "bmc_2.ima", `{"ImageType":"HPM"}`},
			{ownTarget, "bmc_2.ima", `{"ImageType":"Toaster"}`},
		} {
			require.Equal(t, 400, c.oemUpload(tt.parameters, tt.name, raw(tt.name), tt.oem).status, "%+v", tt)
		}
	})
	t.Run("HGX package", func(t *testing.T) {
		_, d, c := of(t, "compute_gb300_lenovo")
		spec, err := firmwarepackage.Product("P4059", "25.09")
		require.NoError(t, err)
		content, err := firmwarepackage.Build(spec)
		require.NoError(t, err)
		require.Equal(t, "Completed", c.follow(c.taskURI(c.oemUpload(noTargets, "x.fwpkg", content, pldmHGX))).get("TaskState"))
		c.auxCycle()
		require.Equal(t, "GB300Nvl-25.09", d.Version("HGX_FW_BMC_0"))
		require.Equal(t, "97.10.25.09", d.Version("HGX_FW_GPU_2"))
		require.NotEqual(t, "GB300Nvl-25.09", d.Version("BMC"))
	})
	t.Run("configuration is kept or lost", func(t *testing.T) {
		for _, keep := range []bool{true, false} {
			_, d, c := of(t, "compute_gb300_lenovo")
			require.Equal(t, 428, c.do(http.MethodPatch, update, preserve(true)).status, "it needs If-Match")
			d.UpdateKnobs(func(k *bmc.Knobs) { k.SilentPatches = 1 })
			require.Equal(t, 204, c.do(http.MethodPatch, update, preserve(keep), "If-Match", "*").status)
			require.Equal(t, false, c.get(update).get("Oem", "AMIUpdateService", "PreserveConfiguration", "Network"), "without effect")
			require.Equal(t, 204, c.do(http.MethodPatch, update, preserve(keep), "If-Match", "*").status)
			require.Equal(t, keep, c.get(update).get("Oem", "AMIUpdateService", "PreserveConfiguration", "Network"))
			require.Equal(t, keep, d.PreservedConfiguration()["Authentication"])

			c.follow(c.taskURI(c.oemUpload(ownTarget, "bmc_3.1.hpm", raw("bmc_3.1.hpm"), `{"ImageType":"HPM"}`)))
			c.hostReset("ForceOff")
			require.Equal(t, 200, c.post(aux, obj{"ResetType": "AuxPowerCycle"}).status)
			c.awaitUp()
			require.Equal(t, "3.1", d.Version("BMC"))
			want := 200
			if !keep {
				want = 401
			}
			require.Equal(t, want, c.get(system).status)
		}
	})
	t.Run("unknown member", func(t *testing.T) {
		_, _, c := of(t, "compute_gb300_lenovo")
		bad := obj{"Oem": obj{"AMIUpdateService": obj{"PreserveConfiguration": obj{"Toast": true}}}}
		require.Equal(t, 400, c.do(http.MethodPatch, update, bad, "If-Match", "*").status)
	})
}

func TestSupermicro(t *testing.T) {
	t.Parallel()
	_, d, c := of(t, "compute_gb300_supermicro")
	for _, parameters := range []string{noTargets, targets(inventory + "HGX_FW_CPU_0"), targets(hgx, inventory+"FW_BMC_0"), targets(inventory + "FW_CPLD_0")} {
		require.Equal(t, 400, c.upload(parameters, "obmc_2.bin", []byte("x")).status, parameters)
	}
	c.follow(c.taskURI(c.upload(targets(hgx), "nosbios_1.fwpkg", pldm(t, "GB300-P4059_nosbios", firmwarepackage.Component{Name: "HMC", Version: "hmc-2"}))))
	c.auxCycle()
	require.Equal(t, "hmc-2", d.Version("HGX_FW_BMC_0"))

	c.follow(c.taskURI(c.upload(targets(inventory+"HGX_FW_CPU_0", inventory+"HGX_FW_CPU_1"), "bios_7.bin", firmwarepackage.Raw("bios_7.bin", 0))))
	c.auxCycle()
	require.Equal(t, []string{"7", "7"}, []string{d.Version("HGX_FW_CPU_0"), d.Version("HGX_FW_CPU_1")})

	resets := d.Resets()
	uri := c.taskURI(c.upload(targets(inventory+"FW_BMC_0"), "obmc_9.bin", firmwarepackage.Raw("obmc_9.bin", 0)))
	require.Equal(t, "Running", c.get(uri).get("TaskState"))
	require.Eventually(t, func() bool { return d.Resets() == resets+1 }, 20*time.Second, time.Millisecond, "the BMC restarts itself")
	require.Equal(t, 503, c.get(uri).status)
	c.awaitUp()
	require.Equal(t, 404, c.get(uri).status, "its task is gone")
	require.Equal(t, "9", c.version("FW_BMC_0"))
	require.Empty(t, d.Pending())
}

func TestWiwynn(t *testing.T) {
	t.Parallel()
	_, d, c := of(t, "compute_gb200_wiwynn")
	require.Empty(t, c.version("FW_BMC_1"))
	require.Regexp(t, `_NV_WW_0\d$`, c.version("FW_BMC_0"))
	require.Regexp(t, `^GB200Nvl-`, c.version("HGX_FW_BMC_0"))
	c.follow(c.taskURI(c.upload(noTargets, "p.fwpkg", pldm(t, "GB200-P4972_1",
		firmwarepackage.Component{Name: "BMC", Version: "new"}, firmwarepackage.Component{Name: "ERoT", Version: "erot"},
		firmwarepackage.Component{Name: "ERoT_AP_CFG", Version: "0x0200"}))))
	require.Equal(t, map[string]string{"FW_BMC_0": "new", "FW_ERoT_BMC_0": "erot", "FW_ERoT_AP_CFG_0": "0x0200"}, d.Pending())
}

func TestImagesBySKU(t *testing.T) {
	t.Parallel()
	_, d, c := of(t, "compute_vrnvl72_nvidia")
	content := pldm(t, "VR-P4110_1",
		firmwarepackage.Component{Name: "IO_Board_SMA", Version: "a", SKU: []byte{0x4A, 0x36, 0x00, 0x10}},
		firmwarepackage.Component{Name: "IO_Board_SMA", Version: "b", SKU: []byte{0x11, 0x00, 0x36, 0x4A}},
		firmwarepackage.Component{Name: "NVMe_E1S", Version: "c", SKU: []byte("MZTL63T8HFLT")},
		firmwarepackage.Component{Name: "CX9", Version: "d"})
	c.follow(c.taskURI(c.upload(noTargets, "p.fwpkg", content)))
	require.Equal(t, map[string]string{
		"FW_IO_Board_SMA_0": "a", "FW_IO_Board_SMA_1": "b", "FW_NVMe_E1S_0": "c", "FW_NVMe_E1S_2": "c",
		"FW_CX_0": "d", "FW_CX_1": "d", "FW_CX_2": "d", "FW_CX_3": "d",
	}, d.Pending())
	require.Equal(t, "0x4A360010", c.get(root+"/Chassis/IO_Board_SMA_0").get("SKU"))
	require.Equal(t, "MZTL63T8HFLT", c.get(system+"/Storage/1/Drives/NVMe_E1S_0").get("Model"))
}

func TestDeltaPower(t *testing.T) {
	t.Parallel()
	_, d, c := of(t, "powershelf_gb200_delta")
	actions := c.get(root+"/PowerEquipment/PowerShelves/1").get("Oem", "deltaenergysystems", "Actions").(map[string]any)
	target := func(name string) string { return actions[name].(map[string]any)["target"].(string) }
	state := func() any {
		return c.get(root+"/Chassis/chassis/PowerSubsystem/PowerSupplies/4").get("Oem", "deltaenergysystems", "Power")
	}
	require.Equal(t, "On", state())
	require.Equal(t, 200, c.post(target("#PowerShelf.TurnOffPSUs"), obj{}).status)
	require.Equal(t, "Off", state())
	require.Equal(t, bmc.PowerOff, d.PowerState())
	require.Equal(t, 200, c.post(target("#PowerShelf.TurnOnPSUs"), nil).status)
	require.Equal(t, "On", state())
	d.UpdateKnobs(func(k *bmc.Knobs) { k.PowerIgnored = true })
	require.Equal(t, 200, c.post(target("#PowerShelf.TurnOffPSUs"), obj{}).status)
	require.Equal(t, "On", state())
}

func TestDeltaUpdates(t *testing.T) {
	t.Parallel()
	controller, err := firmwarepackage.Build(firmwarepackage.DeltaController("1.2.0"))
	require.NoError(t, err)
	supply := pldm(t, "psu", firmwarepackage.Component{Name: "PSU", Version: "0106"})

	t.Run("controller restarts in the middle", func(t *testing.T) {
		_, d, c := of(t, "powershelf_gb200_delta")
		d.SetTiming(bmc.Timing{Task: 400 * time.Millisecond, BMCOutage: 20 * time.Millisecond})
		before := c.version("FW_PMC_primary")
		uri := c.taskURI(c.post(update+"/update", controller))
		require.Eventually(t, func() bool { return d.Resets() == 1 }, 20*time.Second, time.Millisecond)
		require.Equal(t, before, d.Version("FW_PMC_primary"))
		c.awaitUp()
		require.Equal(t, "Completed", c.follow(uri).get("TaskState"))
		require.Equal(t, "1.2.0", c.version("FW_PMC_primary"))
		require.NotEqual(t, "1.2.0", c.version("FW_PMC_alt"))
	})
	for _, shape := range []bmc.Handoff{bmc.HandoffNone, bmc.HandoffAborted, bmc.HandoffInternalError} {
		t.Run("handed off "+string(shape), func(t *testing.T) {
			_, d, c := of(t, "powershelf_gb300_delta")
			d.UpdateKnobs(func(k *bmc.Knobs) { k.Handoff = shape })
			c.do("PATCH", update, obj{"HttpPushUriOptions": obj{"HttpPushUriApplyTime": obj{"ApplyTime": "OnReset"}}})
			uri := c.taskURI(c.post(update+"/update", controller))
			require.Eventually(t, func() bool { return c.get(uri).get("EndTime") != nil }, 20*time.Second, time.Millisecond)
			require.Zero(t, d.Resets())
			require.NotEqual(t, "1.2.0", c.version("FW_PMC_primary"))
			require.Equal(t, 200, c.post(root+"/Managers/PMC_0/Actions/Manager.Reset", obj{"ResetType": "GracefulRestart"}).status)
			c.awaitUp()
			require.Equal(t, "1.2.0", c.version("FW_PMC_primary"))
		})
	}
	t.Run("supplies together", func(t *testing.T) {
		_, d, c := of(t, "powershelf_gb200_delta")
		d.UpdateKnobs(func(k *bmc.Knobs) { k.SupplyFailures = map[string]int{"FW_PSU_2": 1} })
		require.Equal(t, "Exception", c.follow(c.taskURI(c.post(update+"/update", supply))).get("TaskState"))
		require.NotEqual(t, "01060106", c.version("FW_PSU_1"))
		require.Equal(t, "Completed", c.follow(c.taskURI(c.post(update+"/update", supply))).get("TaskState"))
		for _, name := range []string{"FW_PSU_1", "FW_PSU_2", "FW_PSU_6"} {
			require.Equal(t, "01060106", c.version(name))
		}
		require.Zero(t, d.Resets())
	})
	t.Run("no LiteOn push", func(t *testing.T) {
		_, _, c := of(t, "powershelf_gb200_delta")
		require.Equal(t, 404, c.post(units+"/Actions/UpdateService/", supply, "LiteonPowerDeviceId", "1").status)
		require.Equal(t, 404, c.upload(noTargets, "x_1.bin", []byte("x")).status, "nor multipart")
	})
}

// TestSerialFallback is the all-units push that is refused, and units that need a second try.
func TestSerialFallback(t *testing.T) {
	t.Parallel()
	_, d, c := of(t, "powershelf_gb300_liteon")
	d.UpdateKnobs(func(k *bmc.Knobs) {
		k.RejectAllSupplies, k.SupplyFailures, k.SuppliesUnchanged = true, map[string]int{"powerdevice1": 1}, []string{"powerdevice2"}
	})
	image := firmwarepackage.Raw("liteon-psu_F1F1_x.bin", 2000)
	require.Equal(t, 500, c.post(units+"/Actions/UpdateService/", image).status)
	require.Equal(t, 500, c.post(update+"/update", image).status)
	push := func(i string) reply {
		require.Equal(t, 200, c.post(units+"/Actions/UpdateService/", image, "LiteonPowerDeviceId", i).status)
		var page reply
		require.Eventually(t, func() bool {
			page = c.get(units + "/powerdevice" + i)
			return page.get("updateProgress") == 0.0 && page.get("state") == "Enabled"
		}, 20*time.Second, time.Millisecond)
		return page
	}
	require.Equal(t, "0xf1 / 0xf1", push("0").get("Version"))
	failed := push("1")
	require.Equal(t, "Failed", failed.get("status"))
	require.NotEqual(t, "0xf1 / 0xf1", failed.get("Version"))
	require.Equal(t, "0xf1 / 0xf1", push("1").get("Version"))
	require.NotEqual(t, "0xf1 / 0xf1", push("2").get("Version"), "it reports well and has changed nothing")
	require.Equal(t, "OK", c.get(units+"/powerdevice2").get("status"))
}

func TestProductPackages(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		nodeType, number, parameters string
		changed                      []string
	}{
		{"compute_gb200_nvidia", "P4972", noTargets, []string{"FW_BMC_0", "FW_CPLD_0", "FW_ERoT_BMC_0"}},
		{"compute_gb200_nvidia", "P4975", targets(hgx), []string{"HGX_FW_BMC_0", "HGX_FW_CPU_1", "HGX_FW_GPU_0", "HGX_FW_FPGA_0",
			"HGX_FW_CPLD_0", "HGX_FW_ERoT_CPU_0", "HGX_InfoROM_GPU_3", "HGX_PCIeSwitchConfig_0"}},
		{"compute_gb300_nvidia", "P4058", noTargets, []string{"FW_BMC_0"}},
		{"compute_vrnvl72_nvidia", "P4109", targets(hgx), []string{"HGX_FW_BMC_0", "HGX_SBIOS_0", "HGX_SBIOS_1"}},
	} {
		t.Run(tt.nodeType+" "+tt.number, func(t *testing.T) {
			_, d, c := of(t, tt.nodeType)
			spec, err := firmwarepackage.Product(tt.number, "25.09")
			require.NoError(t, err)
			for revision := 1; revision <= 4; revision += 3 {
				spec.Revision = revision
				var content bytes.Buffer
				_, err = firmwarepackage.Write(&content, spec)
				require.NoError(t, err)
				c.follow(c.taskURI(c.upload(tt.parameters, firmwarepackage.FileName(tt.number, "25.09"), content.Bytes())))
				for _, name := range tt.changed {
					require.Contains(t, d.Pending(), name)
				}
				for name, version := range d.Pending() {
					require.True(t, slices.ContainsFunc(spec.Components, func(c firmwarepackage.Component) bool { return c.Version == version }), name)
				}
			}
		})
	}
}
