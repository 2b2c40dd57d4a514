// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/artifacts"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

func TestTaskLocations(t *testing.T) {
	t.Parallel()
	tests := []struct {
		answer bmc.UploadAnswer
		uri    func(t *testing.T, d *sim.Device, got reply) string
	}{
		{bmc.AnswerURL, func(t *testing.T, d *sim.Device, got reply) string {
			require.Empty(t, got.raw)
			uri, ok := strings.CutPrefix(got.header.Get("Location"), d.URL())
			require.True(t, ok)
			return uri
		}},
		{bmc.AnswerRelative, func(t *testing.T, d *sim.Device, got reply) string {
			base, err := url.Parse(d.URL() + update + "/update-multipart")
			require.NoError(t, err)
			require.False(t, strings.HasPrefix(got.header.Get("Location"), "/"))
			at, err := base.Parse(got.header.Get("Location"))
			require.NoError(t, err)
			return at.Path
		}},
		{bmc.AnswerMonitor, func(t *testing.T, _ *sim.Device, got reply) string {
			require.Empty(t, got.raw)
			return got.header.Get("Location")
		}},
		{bmc.AnswerMonitorBody, func(t *testing.T, _ *sim.Device, got reply) string {
			require.Empty(t, got.header.Get("Location"))
			return got.get("TaskMonitor").(string)
		}},
		{bmc.AnswerJobID, func(t *testing.T, _ *sim.Device, got reply) string {
			message := got.get("@Message.ExtendedInfo").([]any)[0].(map[string]any)
			id := message["MessageArgs"].([]any)[0].(string)
			require.Regexp(t, `^JID_\d{12}$`, id)
			return tasks + "/" + id
		}},
	}
	for _, tt := range tests {
		t.Run(string(tt.answer), func(t *testing.T) {
			_, d, c := tray(t)
			d.UpdateKnobs(func(k *bmc.Knobs) { k.UploadAnswer = tt.answer })
			got := c.upload(noTargets, "bmc_2.bin", []byte("x"))
			require.Equal(t, 202, got.status)
			uri := tt.uri(t, d, got)
			require.Eventually(t, func() bool { return c.get(uri).status == 200 }, 20*time.Second, time.Millisecond)
			require.Eventually(t, func() bool { return d.Pending()["FW_BMC_0"] == "2" }, 20*time.Second, time.Millisecond)
		})
	}
}

func TestEmptyMonitor(t *testing.T) {
	t.Parallel()
	for _, end := range []*bmc.TaskEnd{nil, {}} {
		_, d, c := tray(t)
		d.SetTiming(bmc.Timing{Task: 1500 * time.Millisecond})
		d.UpdateKnobs(func(k *bmc.Knobs) {
			k.UploadAnswer, k.TaskMonitor, k.TaskEnd, k.TaskMissingReads = bmc.AnswerMonitor, bmc.MonitorEmpty, end, 2
		})
		uri := c.upload(noTargets, "bmc_2.bin", []byte("x")).header.Get("Location")
		require.Equal(t, 404, c.get(uri).status, "not there yet")
		require.Equal(t, 404, c.get(uri).status)
		running := c.get(uri)
		require.Equal(t, 202, running.status)
		require.Empty(t, running.raw)
		last := running
		require.Eventually(t, func() bool { last = c.get(uri); return last.status != 202 }, 20*time.Second, time.Millisecond)
		if end == nil {
			require.Equal(t, 204, last.status)
		} else {
			require.Equal(t, 500, last.status)
			require.Equal(t, "Update.1.0.ApplyFailed", errorID(last))
		}
	}
}

func TestSameVersion(t *testing.T) {
	t.Parallel()
	for _, mode := range []bmc.SameVersion{bmc.SameVersionFlashes, bmc.SameVersionSkips, bmc.SameVersionNoTask, bmc.SameVersionConflict} {
		t.Run("mode "+string(mode), func(t *testing.T) {
			_, d, c := tray(t)
			d.UpdateKnobs(func(k *bmc.Knobs) { k.SameVersion = mode })
			same := firmwarepackage.Raw("bmc_"+d.Version("FW_BMC_0")+".bin", 0)
			got := c.upload(noTargets, "x.bin", same)
			switch mode {
			case bmc.SameVersionFlashes:
				c.follow(c.taskURI(got))
				require.Len(t, d.Pending(), 1)
			case bmc.SameVersionSkips:
				page := c.follow(c.taskURI(got))
				require.Equal(t, "Completed", page.get("TaskState"))
				require.Contains(t, messageIDs(page), "NvidiaUpdate.1.0.ComponentUpdateSkipped")
				require.Empty(t, d.Pending())
			case bmc.SameVersionNoTask:
				require.Equal(t, 202, got.status)
				require.Empty(t, got.raw)
				require.Empty(t, d.Tasks())
			case bmc.SameVersionConflict:
				require.Equal(t, 409, got.status)
				require.Equal(t, "Base.1.18.1.ResourceAlreadyExists", errorID(got))
			}
			c.follow(c.taskURI(c.upload(`{"Targets":[],"ForceUpdate":true}`, "x.bin", same)))
			require.Len(t, d.Pending(), 1, "forced")
		})
	}
}

func TestDowngradeRefused(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.ComparisonStamp = 100 })
	old := pldm(t, "P4972", firmwarepackage.Component{Name: "BMC", Version: "old", Stamp: 99})
	page := c.follow(c.taskURI(c.upload(noTargets, "p.fwpkg", old)))
	require.Equal(t, "Exception", page.get("TaskState"))
	require.Contains(t, string(page.raw), "Component comparison stamp is lower than the firmware component comparison stamp in the FD.")
	require.Equal(t, "Completed", c.follow(c.taskURI(c.upload(`{"ForceUpdate":true}`, "p.fwpkg", old))).get("TaskState"))
}

func TestWaysToUpdate(t *testing.T) {
	t.Parallel()
	server, err := artifacts.Start(t.Context(), artifacts.Options{TLS: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	server.Put("bmc_2.bin", firmwarepackage.Raw("bmc_2.bin", 100))
	simple := func(c *client, uri string) reply {
		return c.post(update+"/Actions/SimpleUpdate", obj{"ImageURI": uri, "TransferProtocol": "HTTPS"})
	}
	for _, way := range []bmc.Push{bmc.PushMultipart, bmc.PushOctet, bmc.PushSimple} {
		t.Run(string(way), func(t *testing.T) {
			_, d, c := tray(t)
			d.UpdateKnobs(func(k *bmc.Knobs) { k.Advertise = []bmc.Push{way} })
			page := c.get(update)
			require.Equal(t, way == bmc.PushMultipart, page.get("MultipartHttpPushUri") != nil)
			require.Equal(t, way == bmc.PushOctet, page.get("HttpPushUri") != nil)
			require.Equal(t, way == bmc.PushSimple, page.get("Actions", "#UpdateService.SimpleUpdate", "target") != nil)
			status := func(w bmc.Push) int {
				if w == way {
					return 202
				}
				return 404
			}
			require.Equal(t, status(bmc.PushMultipart), c.upload(noTargets, "bmc_2.bin", []byte("x")).status)
			require.Equal(t, status(bmc.PushOctet), c.post(update+"/update", firmwarepackage.Raw("bmc_2.bin", 0)).status)
			require.Equal(t, status(bmc.PushSimple), simple(c, strings.TrimPrefix(server.URL("bmc_2.bin"), "https://")).status)
			require.Eventually(t, func() bool { return d.Pending()["FW_BMC_0"] == "2" }, 20*time.Second, time.Millisecond)
		})
	}
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.Advertise = []bmc.Push{bmc.PushSimple} })
	require.Equal(t, "Update.1.0.TransferFailed", errorID(simple(c, server.URL("none"))))
	require.Equal(t, 400, simple(c, "").status)
}

func TestAimedPush(t *testing.T) {
	t.Parallel()
	rack, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.SameVersion = bmc.SameVersionConflict })
	same := firmwarepackage.Raw("cpld_"+d.Version("FW_CPLD_0")+".bin", 0)
	aim := obj{"HttpPushUriTargets": []string{inventory + "FW_CPLD_0"}, "HttpPushUriOptions": obj{"ForceUpdate": false}}
	require.Equal(t, 204, c.do(http.MethodPatch, update, aim).status)
	require.Equal(t, 409, c.post(update+"/update", same).status)
	require.Equal(t, 204, c.do(http.MethodPatch, update, obj{"HttpPushUriOptions": obj{"ForceUpdate": true}}).status)
	require.Equal(t, true, c.get(update).get("HttpPushUriOptions", "ForceUpdate"))
	c.follow(c.taskURI(c.post(update+"/update", same)))
	require.Contains(t, d.Pending(), "FW_CPLD_0")
	require.Equal(t, []string{inventory + "FW_CPLD_0"}, rack.Uploads("")[1].Upload.Targets)
	require.Equal(t, 400, c.do(http.MethodPatch, update, obj{"HttpPushUriTargets": "x"}).status)
	_, _, s := shelf(t)
	require.Equal(t, 400, s.do(http.MethodPatch, update, aim).status)
	require.Nil(t, s.get(update).get("HttpPushUriTargets"))
}

func TestInventoryKnobs(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	list := func() []string {
		var out []string
		for _, m := range c.get(update + "/FirmwareInventory").get("Members").([]any) {
			out = append(out, strings.TrimPrefix(m.(map[string]any)["@odata.id"].(string), inventory))
		}
		return out
	}
	all := list()
	d.UpdateKnobs(func(k *bmc.Knobs) { k.Hidden = []string{"NIC_0"} })
	require.Len(t, list(), len(all)-1)
	require.Equal(t, 404, c.get(inventory+"NIC_0").status)

	for _, tt := range []struct {
		mode bmc.Embedded
		want int
	}{{bmc.EmbeddedAll, len(all)}, {bmc.EmbeddedHalf, (len(all) + 1) / 2}} {
		d.SetKnobs(bmc.Knobs{EmbeddedInventory: tt.mode})
		entries := c.get(update+"/FirmwareInventory").get("Oem", "Nvidia", "FirmwareInventory").([]any)
		require.Len(t, entries, tt.want)
		require.Equal(t, d.Version("FW_BMC_0"), entries[0].(map[string]any)["Version"])
	}

	// HGX_FW_BMC_0 takes the id of another entry with its next version.
	d.SetKnobs(bmc.Knobs{Renames: map[string]string{"HGX_FW_BMC_0": "FW_BMC_0"}})
	require.Len(t, list(), len(all))
	c.follow(c.taskURI(c.upload(targets(hgx), "hgx_9.bin", []byte("x"))))
	c.auxCycle()
	require.Len(t, list(), len(all)-1)
	require.NotContains(t, list(), "HGX_FW_BMC_0")
	require.Equal(t, 404, c.get(inventory+"HGX_FW_BMC_0").status)
	require.Equal(t, "9", c.version("FW_BMC_0"))
	require.Equal(t, "FW_BMC_0", c.get(inventory+"FW_BMC_0").get("Id"))
	require.Equal(t, "9", d.Version("FW_BMC_0"))
}

func TestResetParameters(t *testing.T) {
	t.Parallel()
	const manager = root + "/Managers/BMC_0"
	shown := func(c *client, resource, action string) obj { return c.get(resource).get("Actions", action).(obj) }
	for _, mode := range []bmc.ResetParameters{
		bmc.ResetParametersListed, bmc.ResetParametersInfo, bmc.ResetParametersUntold, bmc.ResetParametersNone,
	} {
		t.Run("told "+string(mode), func(t *testing.T) {
			_, d, c := tray(t)
			d.UpdateKnobs(func(k *bmc.Knobs) { k.ResetParameters, k.AllowedResets = mode, []string{"ForceRestart", "On"} })
			for resource, action := range map[string]string{system: "#ComputerSystem.Reset", manager: "#Manager.Reset"} {
				a := shown(c, resource, action)
				require.Equal(t, mode == bmc.ResetParametersListed, a["ResetType@Redfish.AllowableValues"] != nil)
				require.Equal(t, mode == bmc.ResetParametersInfo, a["@Redfish.ActionInfo"] != nil)
			}
			if mode == bmc.ResetParametersInfo {
				info := c.get(shown(c, system, "#ComputerSystem.Reset")["@Redfish.ActionInfo"].(string))
				require.Equal(t, []any{"ForceRestart", "On"}, info.get("Parameters").([]any)[0].(map[string]any)["AllowableValues"])
			}
			got := c.hostReset("ForceOff")
			require.Equal(t, 400, got.status)
			require.Equal(t, "Base.1.18.1.ActionParameterNotSupported", errorID(got))
			body, bare := obj{"ResetType": "ForceRestart"}, obj{}
			if mode == bmc.ResetParametersNone {
				require.Equal(t, 400, c.post(manager+"/Actions/Manager.Reset", body).status)
				body, bare = bare, body
			}
			require.Equal(t, 400, c.post(manager+"/Actions/Manager.Reset", bare).status)
			require.Equal(t, 200, c.post(manager+"/Actions/Manager.Reset", body).status)
			require.Equal(t, 1, d.Resets())
		})
	}
}

func TestBareActions(t *testing.T) {
	t.Parallel()
	const off = root + "/PowerEquipment/PowerShelves/1/Oem/deltaenergysystems/Actions/PowerShelf.TurnOffPSUs"
	for mode, want := range map[bmc.BareActions][2]int{
		bmc.BareActionsAny: {200, 200}, bmc.BareActionsNeedBody: {200, 415}, bmc.BareActionsRefuseBody: {400, 200},
	} {
		_, d, c := of(t, "powershelf_gb200_delta")
		d.UpdateKnobs(func(k *bmc.Knobs) { k.BareActions = mode })
		require.Equal(t, want, [2]int{c.post(off, obj{}).status, c.post(off, nil).status}, mode)
	}
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) {
		k.BareActions, k.ResetParameters = bmc.BareActionsRefuseBody, bmc.ResetParametersNone
	})
	require.Equal(t, 400, c.post(root+"/Managers/BMC_0/Actions/Manager.Reset", obj{}).status)
	require.Equal(t, 200, c.post(root+"/Managers/BMC_0/Actions/Manager.Reset", nil).status)
}

func TestEntityTags(t *testing.T) {
	t.Parallel()
	patch := obj{"HttpPushUriOptions": obj{"HttpPushUriApplyTime": obj{"ApplyTime": "OnReset"}}}
	for _, tt := range []struct {
		mode                               bmc.IfMatch
		whole, bare, star, absent, tagless int
	}{
		{bmc.IfMatchOptional, 204, 204, 204, 204, 0},
		{bmc.IfMatchWeak, 204, 412, 412, 428, 0},
		{bmc.IfMatchStrong, 412, 204, 412, 428, 0},
		{bmc.IfMatchEmpty, 0, 0, 412, 204, 412},
	} {
		t.Run("mode "+string(tt.mode), func(t *testing.T) {
			send := func(header ...string) int {
				_, d, c := shelf(t)
				d.UpdateKnobs(func(k *bmc.Knobs) { k.IfMatch = tt.mode })
				got := c.get(update)
				if len(header) == 2 && header[1] == "tag" {
					header[1] = got.header.Get("ETag")
					require.NotEmpty(t, header[1])
				}
				if len(header) == 2 && header[1] == "bare" {
					header[1] = strings.TrimPrefix(got.header.Get("ETag"), "W/")
				}
				if tt.mode == bmc.IfMatchEmpty {
					require.Equal(t, []string{""}, got.header["Etag"])
				}
				return c.do(http.MethodPatch, update, patch, header...).status
			}
			if tt.mode == bmc.IfMatchEmpty {
				require.Equal(t, tt.tagless, send("If-Match", ""))
			} else {
				require.Equal(t, tt.whole, send("If-Match", "tag"))
				require.Equal(t, tt.bare, send("If-Match", "bare"))
			}
			require.Equal(t, tt.star, send("If-Match", "*"))
			require.Equal(t, tt.absent, send())
		})
	}
}

func TestBreakGzip(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.BreakGzip = true })
	_, err := c.try(http.MethodGet, system, "")
	require.Error(t, err, "this client accepts gzip")
	require.Equal(t, 200, c.do(http.MethodGet, system, nil, "Accept-Encoding", "identity").status)
}

func TestPowerKnobs(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	require.Equal(t, 204, c.hostReset("ForceRestart").status)
	require.Equal(t, 1, d.Boots())
	d.UpdateKnobs(func(k *bmc.Knobs) { k.PowerOnIgnored, k.PowerOffIgnored = 1, 2 })
	for range 2 {
		require.Equal(t, 204, c.hostReset("ForceOff").status)
		require.Equal(t, bmc.PowerOn, d.PowerState())
	}
	require.Equal(t, 204, c.hostReset("ForceOff").status)
	require.Equal(t, bmc.PowerOff, d.PowerState())
	require.Equal(t, 204, c.hostReset("On").status)
	require.Equal(t, bmc.PowerOff, d.PowerState())
	d.UpdateKnobs(func(k *bmc.Knobs) { k.PowerOnStuck = true })
	require.Equal(t, 204, c.hostReset("On").status)
	require.Equal(t, bmc.PowerPoweringOn, d.PowerState())
	require.Equal(t, 2, d.Boots())
	require.Equal(t, 204, c.hostReset("ForceOff").status)
	require.Equal(t, 200, c.post(aux, obj{"ResetType": "AuxPowerCycle"}).status)
	require.Equal(t, 1, d.AUXCycles())
}

func TestManagerRestartSigns(t *testing.T) {
	t.Parallel()
	const manager = root + "/Managers/bmc"
	_, d, c := shelf(t)
	at := func() any { return c.get(manager).get("LastResetTime") }
	reset := func() {
		require.Equal(t, 200, c.post(manager+"/Actions/Manager.Reset", obj{"ResetType": "GracefulRestart"}).status)
	}
	before := at()
	require.NotNil(t, before)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.ManagerResetIgnored = true })
	reset()
	require.Equal(t, before, at())
	require.Zero(t, d.Resets())
	d.SetKnobs(bmc.Knobs{SilentManagerReset: true})
	reset()
	require.NotEqual(t, before, at(), "no outage was to be seen")
	d.UpdateKnobs(func(k *bmc.Knobs) { k.HideLastReset = true })
	require.Nil(t, at())
}

func TestImmediateVersions(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	d.UpdateKnobs(func(k *bmc.Knobs) { k.Immediate, k.UploadAnswer = true, bmc.AnswerOKEmpty })
	require.Equal(t, 200, c.upload(noTargets, "bmc_2.bin", []byte("x")).status)
	require.Eventually(t, func() bool { return c.version("FW_BMC_0") == "2" }, 20*time.Second, time.Millisecond)
	require.Zero(t, d.Resets())
}

func TestAbortTask(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 1, Control: "127.0.0.1:0", Timing: bmc.Timing{Task: time.Second}})
	d := rack.Devices()[0]
	c := newClient(t, rack, d)
	c.upload(noTargets, "bmc_2.bin", []byte("x"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete,
		"http://"+rack.ControlAddr()+"/sim/devices/"+d.ID()+"/tasks/0", nil)
	require.NoError(t, err)
	res, err := http.DefaultTransport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	require.Equal(t, 204, res.StatusCode)
	require.Equal(t, 404, c.get(tasks+"/0").status)
	require.Never(t, func() bool { return len(d.Pending()) > 0 }, 1100*time.Millisecond, 50*time.Millisecond)
}

func TestSessions(t *testing.T) {
	t.Parallel()
	_, d, c := tray(t)
	login := func(password string) reply {
		c.user = ""
		defer func() { c.user = d.Username() }()
		return c.post(root+"/SessionService/Sessions", obj{"UserName": d.Username(), "Password": password})
	}
	require.Equal(t, 503, login(d.Password()).status, "the service is disabled")
	d.UpdateKnobs(func(k *bmc.Knobs) { k.SessionSlots = 2 })
	require.Equal(t, 401, login("wrong").status)
	first := login(d.Password())
	require.Equal(t, 201, first.status)
	token := first.header.Get("X-Auth-Token")
	require.Equal(t, 201, login(d.Password()).status)
	full := login(d.Password())
	require.Equal(t, 503, full.status)
	require.Equal(t, "Base.1.18.1.SessionLimitExceeded", errorID(full))
	require.Equal(t, 2, d.Sessions())

	withToken := func() int {
		c.user = ""
		defer func() { c.user = d.Username() }()
		return c.do(http.MethodGet, system, nil, "X-Auth-Token", token).status
	}
	require.Equal(t, 200, withToken())
	uri := first.header.Get("Location")
	require.Equal(t, 200, c.get(uri).status)
	require.Equal(t, 204, c.do(http.MethodDelete, uri, nil).status)
	require.Equal(t, 404, c.do(http.MethodDelete, uri, nil).status)
	require.Equal(t, 401, withToken())
	d.DropSessions()
	require.Zero(t, d.Sessions())
	require.Equal(t, 405, c.do(http.MethodDelete, system, nil).status)
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	rack, _, c := tray(t)
	add := func(rule string) {
		rules, err := faults.Load(strings.NewReader("[" + rule + "]"))
		require.NoError(t, err)
		_, err = rack.AddFault(rules[0])
		require.NoError(t, err)
	}
	add(`{"selector":{"path":"/redfish/v1/Systems**"},"action":{"redirect":{"code":301}}}`)
	got := c.get(system)
	require.Equal(t, 301, got.status)
	require.Equal(t, system+"/", got.header.Get("Location"))
	require.Equal(t, 200, c.get(system+"/").status)
	rack.ClearFaults()
	add(`{"action":{"redirect":{"to":"https://192.0.2.1{path}"}}}`)
	got = c.hostReset("ForceOff")
	require.Equal(t, 308, got.status)
	require.Equal(t, "https://192.0.2.1"+reset, got.header.Get("Location"))
	rack.ClearFaults()
	require.Equal(t, "On", c.get(system).get("PowerState"), "nothing was executed")
	add(`{"action":{"status":{"code":409,"message_id":"Base.1.18.1.ActionParameterValueConflict","message":"Not now."}},"remaining":1}`)
	got = c.hostReset("On")
	require.Equal(t, "Base.1.18.1.ActionParameterValueConflict", errorID(got))
	require.Contains(t, string(got.raw), "Not now.")
	for _, bad := range []string{`{"action":{"redirect":{"code":200}}}`, `{"selector":{"path":"/x"},"action":"Mute"}`} {
		_, err := faults.Load(strings.NewReader("[" + bad + "]"))
		require.ErrorIs(t, err, faults.ErrInvalidRule)
	}
}
