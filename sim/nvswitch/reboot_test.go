// SPDX-License-Identifier: Apache-2.0

package nvswitch_test

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// awaitReboot waits until the switch went down n times and is up again.
func awaitReboot(t *testing.T, s *nvswitch.Switch, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return s.Reboots() == n && s.Up() }, patience, s.Timing().Reboot/40)
}

func TestInstallImage(t *testing.T) {
	timing := quick()
	timing.Shutdown, timing.Reboot = 700*time.Millisecond, time.Second // long enough to be seen
	s := start(t, nvswitch.Options{Timing: timing, Knobs: nvswitch.Knobs{NewHostKey: true}})
	c := newClient(t, s)
	const file = "nvos-amd64-25.02.4440.bin"
	install := obj{"force": true, "image-file": file}
	path := "/system/image/files/" + file
	require.Equal(t, "action_error", c.perform(path, "@install", install))

	require.NoError(t, s.WriteFile("/host/nos-images/"+file, nvswitch.ImageContent("25.02.4440", 2048)))
	require.Contains(t, c.get("/system/image/files").doc, file)
	key := s.HostKey().Marshal()
	id := c.act(path, "@install", install)
	require.Eventually(t, func() bool {
		r, err := c.request(t.Context(), http.MethodGet, "/action/"+id, nil)
		detail, _ := r.get("detail").(string)
		return err == nil && detail != ""
	}, patience, s.Timing().Install)
	require.Eventually(t, func() bool { return !s.Up() }, patience, s.Timing().Install)
	for _, service := range []string{"nvue", "ssh"} {
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", s.Addr(service))
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		}, patience, s.Timing().Install)
	}
	awaitReboot(t, s, 1)
	c.awaitStatus(http.StatusOK)
	require.Equal(t, http.StatusNotFound, c.get("/action/"+id).status)
	require.Equal(t, "nvos-25.02.4440", s.Images().Current)
	require.Equal(t, "nvos-25.02.4440", s.Images().Next)
	require.Equal(t, "2", c.get("/system/image").get("current"))
	require.NotEqual(t, key, s.HostKey().Marshal())
	require.Len(t, s.Installs(), 1)
	require.Len(t, s.Installs()[0].SHA256, 64)

	require.NoError(t, s.WriteFile("/tmp/nvos-amd64-25.02.5000.bin", []byte("no marker, so the name counts")))
	require.Equal(t, "action_success", c.perform("/system/image", "@fetch", obj{"remote-url": "file:///tmp/nvos-amd64-25.02.5000.bin"}))
	require.Len(t, c.get("/system/image/files").doc, 2)
	require.Equal(t, "action_error", c.perform("/system/image", "@fetch", obj{"remote-url": "https://192.0.2.1/x.bin"}))

	require.Equal(t, "action_success", c.perform("/system/image", "@uninstall", obj{"force": true}))
	require.Equal(t, [2]string{"", "nvos-25.02.4440"}, s.Images().Partitions)
	s.SetKnobs(nvswitch.Knobs{BootOldImage: true})
	require.Equal(t, "action_success", c.perform(path, "@install", obj{"force": false, "reboot": "no", "image-file": file}))
	require.Equal(t, 1, s.Reboots())
	s.SetKnobs(nvswitch.Knobs{InstallExpiresAdmin: true, BootImage: "nvos-1.2.3"})
	s.Reboot()
	awaitReboot(t, s, 2)
	require.Equal(t, "nvos-1.2.3", s.Images().Current)
	c.awaitStatus(http.StatusUnauthorized)
	require.True(t, s.Expired("admin"))
}

func TestFactoryReset(t *testing.T) {
	s := start(t, nvswitch.Options{})
	c := newClient(t, s)
	ca := newPKI(t, farAway())
	require.NoError(t, s.WriteFile("/home/admin/certs/x/client.key", []byte("k")))
	require.NoError(t, s.Provision("id", ca.material, "gnmi", "nmxc"))
	r := c.do(http.MethodPost, "/system/factory-default", obj{"@reset": obj{"state": "start", "parameters": obj{"force": true}}})
	require.Equal(t, http.StatusCreated, r.status)
	awaitReboot(t, s, 1)
	require.Equal(t, 1, s.FactoryResets())
	c.awaitStatus(http.StatusUnauthorized)
	require.Equal(t, "admin", s.UserPassword("admin"))
	require.Empty(t, s.Files("/home"))
	require.Equal(t, "disabled", s.App("nmx-controller").Encryption)
	c.pass = "admin"
	require.Equal(t, http.StatusUnauthorized, c.status()) // expired
	dial(t, s, "admin", "admin")
	s.SetUser("admin", "admin", false)
	require.Equal(t, http.StatusOK, c.status())

	s.UpdateKnobs(func(k *nvswitch.Knobs) { k.NeverBack = true })
	s.Reboot()
	require.False(t, s.Up())
	_, err := net.Dial("tcp", s.Addr("nvue"))
	require.Error(t, err)
}

// A switch keeps answering as before until it goes down.
func TestResetTakesItsTime(t *testing.T) {
	timing := quick()
	timing.Shutdown = time.Hour
	s := start(t, nvswitch.Options{Timing: timing, Password: "admin"})
	c := newClient(t, s)
	id := c.act("/system/factory-default", "@reset", obj{"force": true})
	require.Equal(t, "action_success", c.follow(id).get("state"))
	dial(t, s, "admin", "admin")
	require.Equal(t, http.StatusOK, c.status())
	require.Zero(t, s.Reboots())
	s.SetTiming(quick())
	s.Reboot()
	awaitReboot(t, s, 1)
	require.False(t, s.Expired("admin"))
}

func TestFirmware(t *testing.T) {
	s := start(t, nvswitch.Options{Model: nvswitch.VRNVL72})
	c := newClient(t, s)
	raw, err := firmwarepackage.Build(firmwarepackage.Spec{Version: "P1", Components: []firmwarepackage.Component{
		{Name: "BMC", Version: "88.1"}, {Name: "CPLD", Version: "C2"},
	}})
	require.NoError(t, err)
	require.NoError(t, s.WriteFile("/host/fw-images/bmc/pack.fwpkg", raw))
	require.NoError(t, s.WriteFile("/host/fw-images/cpld/cpld_REV2.vme", firmwarepackage.Raw("cpld_REV2.vme", 2048)))
	require.Contains(t, c.get("/platform/firmware/CPLD1/files").doc, "cpld_REV2.vme")
	require.Equal(t, "action_success", c.perform("/platform/firmware/BMC/files/pack.fwpkg", "@install", obj{"force": false}))
	require.Equal(t, "action_success", c.perform("/platform/firmware/CPLD1/files/cpld_REV2.vme", "@install", obj{"force": false}))
	require.Equal(t, map[string]string{"BMC": "88.1", "CPLD1": "REV2"}, s.Pending())
	require.NotEqual(t, "88.1", s.Version("BMC"))
	c.act("/system", "@power-cycle", obj{"force": true})
	awaitReboot(t, s, 1)
	require.Equal(t, "88.1", s.Version("BMC"))
	c.awaitStatus(http.StatusOK)

	require.NoError(t, s.WriteFile("/tmp/all_9.9.fwpkg", firmwarepackage.Raw("all_9.9.fwpkg", 4096)))
	require.Equal(t, "action_success", c.perform("/platform/firmware", "@fetch", obj{"remote-url": "file:///tmp/all_9.9.fwpkg"}))
	require.Equal(t, "action_success", c.perform("/platform/firmware/files/all_9.9.fwpkg", "@install", obj{"force": false}))
	require.Len(t, s.Pending(), 5)
	require.Equal(t, "applied", c.change(map[string]obj{"/platform/firmware/ASIC": {"auto-update": "disabled"}}))
	require.Equal(t, "disabled", c.get("/platform/firmware/ASIC").get("auto-update"))
	require.Equal(t, "default", c.get("/platform/firmware/ASIC").get("fw-source"))
}

func TestPower(t *testing.T) {
	timing := quick()
	timing.Reboot = time.Second // long enough to be seen
	s := start(t, nvswitch.Options{Timing: timing, BMCUsername: "root", BMCPassword: "bmc-pw"})
	c := newClient(t, s)
	bmc := &client{t: t, base: "https://" + s.Addr("bmc"), user: "root", pass: "bmc-pw", http: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patience,
	}}
	t.Cleanup(bmc.http.CloseIdleConnections)
	const system = "/redfish/v1/Systems/System_0"
	reset := func(kind string) int {
		return bmc.do(http.MethodPost, system+"/Actions/ComputerSystem.Reset", obj{"ResetType": kind}).status
	}
	require.Equal(t, "On", bmc.get(system).get("PowerState"))
	require.Equal(t, http.StatusNoContent, reset("ForceOff"))
	require.Equal(t, "Off", bmc.get(system).get("PowerState"))
	require.Equal(t, 0, c.status())
	require.Equal(t, http.StatusNoContent, reset("On"))
	require.Equal(t, "On", bmc.get(system).get("PowerState"))
	c.awaitStatus(http.StatusOK)
	require.Equal(t, http.StatusNoContent, reset("PowerCycle"))
	require.Equal(t, 0, c.status())
	awaitReboot(t, s, 2)
	require.Equal(t, http.StatusBadRequest, reset("Nmi"))
	require.Equal(t, http.StatusNotFound, bmc.get("/redfish/v1/Nope").status)
	s.UpdateKnobs(func(k *nvswitch.Knobs) { k.PowerReported, k.PowerIgnored = "PoweringOn", true })
	require.Equal(t, "PoweringOn", bmc.get(system).get("PowerState"))
	require.Equal(t, http.StatusNoContent, reset("ForceOff"))
	require.True(t, s.Up())
	bmc.pass = "wrong"
	require.Equal(t, http.StatusUnauthorized, bmc.get(system).status)
	require.Equal(t, http.StatusOK, bmc.get("/redfish/v1").status)

	s.CutPower(true)
	_, err := net.Dial("tcp", s.Addr("bmc"))
	require.ErrorContains(t, err, "refused")
	s.CutPower(false)
	c.awaitStatus(http.StatusOK)
}
