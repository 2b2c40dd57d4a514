// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
)

func TestAuthentication(t *testing.T) {
	t.Parallel()
	rack, d, _ := tray(t)
	tests := []struct {
		name, user, pass, path string
		want                   int
	}{
		{"root is open", "", "", root, 200},
		{"root with slash is open", "", "", root + "/", 200},
		{"nothing else is", "", "", system, 401},
		{"wrong password", d.Username(), "no", system, 401},
		{"wrong user", "no", d.Password(), system, 401},
		{"right", d.Username(), d.Password(), system, 200},
		{"unknown resource needs it too", "", "", root + "/Nothing", 401},
		{"unknown resource", d.Username(), d.Password(), root + "/Nothing", 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, rack, d)
			c.user, c.pass = tt.user, tt.pass
			got := c.get(tt.path)
			require.Equal(t, tt.want, got.status)
			if tt.want == http.StatusUnauthorized {
				require.Contains(t, got.header.Get("WWW-Authenticate"), "Basic realm=")
			}
		})
	}
	d.SetAccount("other", "secret")
	require.Equal(t, 401, newClient(t, rack, d).get(system).status)
	d.SetAccount(d.Username(), d.Password())
	d.UpdateKnobs(func(k *bmc.Knobs) { k.PasswordExpired = true })
	got := newClient(t, rack, d).get(system)
	require.Equal(t, 403, got.status)
	require.Contains(t, errorID(got), "PasswordChangeRequired")
}

// TestTreesAreClosed follows every link of each model and expects no dead ends.
func TestTreesAreClosed(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 2, PowerShelves: 2, ComputeGeneration: sim.Mixed, ShelfGeneration: sim.Mixed})
	for _, d := range rack.Devices() {
		t.Run(d.NodeType(), func(t *testing.T) {
			c := newClient(t, rack, d)
			seen := map[string]bool{}
			var walk func(v any)
			visit := func(uri string) {
				if seen[uri] {
					return
				}
				seen[uri] = true
				got := c.get(uri)
				require.Equal(t, http.StatusOK, got.status, uri)
				require.Equal(t, uri, got.get("@odata.id"))
				walk(got.doc)
			}
			walk = func(v any) {
				switch v := v.(type) {
				case map[string]any:
					for k, inner := range v {
						if uri, ok := inner.(string); ok && (k == "@odata.id" || k == "@Redfish.ActionInfo") {
							visit(uri)
						} else if uri, ok := inner.(string); ok && k == "target" {
							require.Equal(t, http.StatusMethodNotAllowed, c.get(uri).status, uri)
						} else {
							walk(inner)
						}
					}
				case []any:
					for _, inner := range v {
						walk(inner)
					}
				}
			}
			visit(root)
			require.Greater(t, len(seen), 25)
		})
	}
}

func TestComputeModels(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 2, ComputeGeneration: sim.Mixed, Seed: 7})
	old, young := newClient(t, rack, rack.Devices()[0]), newClient(t, rack, rack.Devices()[1])
	require.Equal(t, 404, old.get(inventory+"HGX_SXM_MCU_0").status)
	require.Equal(t, 404, old.get(inventory+"SMA_0").status)
	require.NotEmpty(t, young.version("HGX_SXM_MCU_0"))
	require.NotEmpty(t, young.version("SMA_0"))
	require.Equal(t, "GB300 NVL", young.get(system).get("Model"))

	topology := []string{"Oem", "Nvidia", "MNNVLinkTopology"}
	a := old.get(root + "/Systems/HGX_Baseboard_0/Processors/GPU_0").get(topology...).(map[string]any)
	b := young.get(root + "/Systems/HGX_Baseboard_0/Processors/GPU_0").get(topology...).(map[string]any)
	require.Regexp(t, `^\d{13}$`, a["ChassisSerialNumber"])
	require.Equal(t, a["ChassisSerialNumber"], b["ChassisSerialNumber"], "one rack")
	require.Equal(t, 0.0, a["TraySlotIndex"])
	require.Equal(t, 1.0, b["TraySlotIndex"])
}

func TestHostPower(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	steps := []struct {
		kind   string
		status int
		state  string
	}{
		{"ForceOff", 204, "Off"},
		{"GracefulShutdown", 204, "Off"},
		{"On", 204, "On"},
		{"GracefulShutdown", 204, "Off"},
		{"ForceOn", 204, "On"},
		{"PowerCycle", 204, "On"},
		{"GracefulRestart", 204, "On"},
		{"ForceRestart", 204, "On"},
		{"Nmi", 204, "On"},
		{"FullPowerCycle", 400, "On"},
	}
	for _, s := range steps {
		require.Equal(t, s.status, c.hostReset(s.kind).status, s.kind)
		require.Equal(t, s.state, c.get(system).get("PowerState"), s.kind)
		require.Equal(t, s.state, d.PowerState(), s.kind)
	}
	require.Contains(t, errorID(c.hostReset("FullPowerCycle")), "ActionParameterNotSupported")
	require.Contains(t, errorID(c.post(reset, obj{})), "ActionParameterMissing")
	require.Equal(t, 400, c.do(http.MethodPost, reset, "no object").status)
	require.Equal(t, 415, c.post(reset, []byte(`{"ResetType":"On"}`)).status)
	require.Equal(t, 405, c.do(http.MethodDelete, system, nil).status)

	d.UpdateKnobs(func(k *bmc.Knobs) { k.PowerIgnored = true })
	require.Equal(t, 204, c.hostReset("ForceOff").status)
	require.Equal(t, "On", c.get(system).get("PowerState"))
	d.UpdateKnobs(func(k *bmc.Knobs) { k.PowerReported = "PoweringOn" })
	require.Equal(t, "PoweringOn", c.get(system).get("PowerState"))
}

func TestPowerTransitionsTakeTime(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 1, Timing: bmc.Timing{PowerOn: time.Second, Shutdown: time.Second}})
	c := newClient(t, rack, rack.Devices()[0])
	settle := func(want string) {
		require.Eventually(t, func() bool { return c.get(system).get("PowerState") == want }, 20*time.Second, time.Millisecond)
	}
	c.hostReset("GracefulShutdown")
	require.Equal(t, "PoweringOff", c.get(system).get("PowerState"))
	settle("Off")
	c.hostReset("On")
	require.Equal(t, "PoweringOn", c.get(system).get("PowerState"))
	settle("On")
}

func TestAUXPowerReset(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	body := obj{"ResetType": "AuxPowerCycle"}
	refused := c.post(aux, body)
	require.Equal(t, 400, refused.status)
	require.Contains(t, errorID(refused), "ChassisPowerStateOffRequired")
	require.Zero(t, d.Resets())

	c.hostReset("ForceOff")
	require.Equal(t, 400, c.post(aux, obj{"ResetType": "On"}).status)
	require.Equal(t, 200, c.post(aux, body).status)
	require.Equal(t, 503, c.get(root).status, "the BMC is away")
	c.awaitUp()
	require.Equal(t, "Off", c.get(system).get("PowerState"))
	require.Equal(t, 1, d.Resets())
}

func TestManagerReset(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	target := root + "/Managers/BMC_0/Actions/Manager.Reset"
	require.Equal(t, 400, c.post(target, obj{"ResetType": "Sideways"}).status)
	require.Equal(t, 200, c.post(target, obj{"ResetType": "GracefulRestart"}).status)
	require.Equal(t, 503, c.get(root).status)
	c.awaitUp()

	require.Equal(t, 200, c.post(root+"/Managers/HGX_BMC_0/Actions/Manager.Reset", obj{"ResetType": "ForceRestart"}).status)
	require.Equal(t, 200, c.get(root).status, "the HMC's reset is not seen")

	d.UpdateKnobs(func(k *bmc.Knobs) { k.SilentManagerReset = true })
	require.Equal(t, 200, c.post(target, obj{"ResetType": "ForceRestart"}).status)
	require.Equal(t, 200, c.get(root).status)
	require.Equal(t, 2, d.Resets())
}

func TestShelfPower(t *testing.T) {
	t.Parallel()
	_, d, c := shelf(t)
	chassis := root + "/Chassis/powershelf"
	on := func() (out []bool) {
		for _, m := range c.get(chassis + "/PowerSubsystem/PowerSupplies").get("Members").([]any) {
			out = append(out, c.get(m.(map[string]any)["@odata.id"].(string)).get("PowerState").(bool))
		}
		return out
	}
	all := func(v bool) []bool { return []bool{v, v, v, v, v, v} }
	require.Equal(t, all(true), on())

	page := c.get(chassis)
	info := c.get(page.get("Actions", "#Chassis.ForceOff", "@Redfish.ActionInfo").(string))
	parameter := info.get("Parameters").([]any)[0].(map[string]any)
	require.Equal(t, "ForceOffType", parameter["Name"])
	require.Equal(t, []any{"ForceOff"}, parameter["AllowableValues"])

	require.Equal(t, 400, c.post(chassis+"/Actions/Chassis.ForceOff", obj{}).status)
	require.Equal(t, 200, c.post(chassis+"/Actions/Chassis.ForceOff", obj{"ForceOffType": "ForceOff"}).status)
	require.Equal(t, all(false), on())
	require.Equal(t, 200, c.post(chassis+"/Actions/Chassis.On", obj{"OnType": "On"}).status)
	require.Equal(t, all(true), on())
	require.Equal(t, 200, c.post(chassis+"/Actions/Chassis.Reset", obj{"ResetType": "GracefulShutdown"}).status)
	require.Equal(t, all(false), on())
	d.SetSupply(2, true)
	require.Equal(t, []bool{false, false, true, false, false, false}, on())
	require.Equal(t, "Off", d.PowerState())
}

func TestCoupledPower(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 1, PowerShelves: 2, CoupledPower: true})
	host := newClient(t, rack, rack.Device("compute-0001"))
	off := func(id string) {
		newClient(t, rack, rack.Device(id)).post(root+"/Chassis/powershelf/Actions/Chassis.ForceOff", obj{"ForceOffType": "ForceOff"})
	}
	off("powershelf-0001")
	require.Equal(t, 200, host.get(root).status, "one shelf is enough")
	off("powershelf-0002")
	require.Equal(t, 503, host.get(root).status)
	require.Equal(t, "Off", rack.Device("compute-0001").PowerState())
	newClient(t, rack, rack.Device("powershelf-0001")).post(root+"/Chassis/powershelf/Actions/Chassis.On", obj{"OnType": "On"})
	host.awaitUp()
	require.Equal(t, "Off", host.get(system).get("PowerState"))
}
