// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

const unitsURI = "/redfish/v1/Chassis/powershelf/Power/Oem/LiteOn/PowerUnits"

func unit(id, version, progress, status string) http.HandlerFunc {
	return ok(fmt.Sprintf(`{"Id":%q,"Model":"PS","SerialNumber":1,"Version":%q,"state":"Enabled2","status":%q,"updateProgress":%s}`, id, version, status, progress))
}

func TestPowerUnitFileNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"SP-1234_F1F1_signed.bin": "F1F1", "x_a0b1.bin": "A0B1", "a_F1F1_0102_x": "F1F1", "plain.bin": "", "a_F1F1F_x": "",
	} {
		require.Equal(t, want, redfish.PowerUnitVersion(name), name)
	}
}

func TestPowerUnitPhase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		u      redfish.PowerUnit
		target string
		want   redfish.PowerUnitPhase
	}{
		{redfish.PowerUnit{Version: "0xf1 / 0xf1", Progress: 0}, "F1F1", redfish.PowerUnitDone},
		{redfish.PowerUnit{Version: "0xf1 / 0xf0", Progress: 0}, "F1F1", redfish.PowerUnitUpdating},
		{redfish.PowerUnit{Version: "0xf1 / 0xf1", Progress: 60}, "F1F1", redfish.PowerUnitUpdating},
		{redfish.PowerUnit{Version: "f1f1", Progress: 0}, "F1F1", redfish.PowerUnitDone},
		{redfish.PowerUnit{Progress: 100}, "", redfish.PowerUnitDone},
		{redfish.PowerUnit{Progress: 40}, "", redfish.PowerUnitUpdating},
		{redfish.PowerUnit{Progress: 0, Status: "Update FAILED"}, "", redfish.PowerUnitFailed},
		{redfish.PowerUnit{Progress: -1}, "", redfish.PowerUnitUpdating},
	} {
		require.Equal(t, c.want, c.u.Phase(c.target), "%+v", c.u)
	}
}

func TestPowerUnitUpdate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		push := unitsURI + "/Actions/UpdateService/"
		b.on("POST "+push, reply(200, `{"Result":"success"}`))
		three := unitsURI + "/powerdevice3"
		b.on(three, unit("powerdevice3", "0xf0 / 0xf0", "10", "busy"), cut, unit("powerdevice3", "0xf1 / 0xf1", `"0"`, "OK"))
		c := b.client(liteon, defaults)
		require.NoError(t, c.PushPowerUnit(t.Context(), "powerdevice3", image(9000)))
		post := b.requests("POST", push)[0]
		require.Equal(t, "3", post.header.Get("LiteonPowerDeviceId"))
		require.Equal(t, "application/octet-stream", post.header.Get("Content-Type"))
		require.Len(t, post.body, 9000)
		var percents []int
		got, err := c.WaitPowerUnit(t.Context(), "powerdevice3", "F1F1", func(p int, _ string) { percents = append(percents, p) })
		require.NoError(t, err)
		require.Equal(t, []int{10, 0}, percents)
		require.Equal(t, "1", got.SerialNumber)

		b.on(three, unit("powerdevice3", "0xf0 / 0xf0", "10", "Update failed"))
		_, err = c.WaitPowerUnit(t.Context(), "powerdevice3", "F1F1", nil)
		require.ErrorContains(t, err, "Update failed")
		b.on(three, unit("powerdevice3", "0xf0 / 0xf0", "10", "busy"))
		started := time.Now()
		_, err = c.WaitPowerUnit(t.Context(), "powerdevice3", "F1F1", nil)
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
		require.Equal(t, 1800*time.Second, time.Since(started))

		for _, id := range []string{"powerdevice", "3x", "../x", ""} {
			require.Error(t, c.PushPowerUnit(t.Context(), id, image(1)), id)
		}
		require.Error(t, b.client(gb200).PushPowerUnit(t.Context(), "powerdevice3", image(1)))
	})
}

func TestValidatePowerUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.on(unitsURI, ok(members(unitsURI+"/powerdevice1", unitsURI+"/powerdevice0")))
		b.on(unitsURI+"/powerdevice0", unit("powerdevice0", "0xf1 / 0xf1", "0", ""))
		b.on(unitsURI+"/powerdevice1", unit("powerdevice1", "0xf0 / 0xf1", "0", ""), unit("powerdevice1", "0xf1 / 0xf1", "0", ""))
		c := b.client(liteon, defaults)
		units, err := c.PowerUnits(t.Context())
		require.NoError(t, err)
		require.Equal(t, "powerdevice0", units[0].ID)
		_, err = c.ValidatePowerUnits(t.Context(), "F1F1")
		require.NoError(t, err)

		b.on(unitsURI+"/powerdevice1", unit("powerdevice1", "0xf0 / 0xf1", "0", ""))
		started := time.Now()
		bad, err := c.ValidatePowerUnits(t.Context(), "F1F1")
		require.Equal(t, redfish.CodeTimeout, redfish.CodeOf(err))
		require.Len(t, bad, 1)
		require.Equal(t, 300*time.Second, time.Since(started))
	})
}

func TestPushToAllPowerUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		b.updateService(`{"HttpPushUri":"` + pushURI + `"}`)
		b.on("POST "+pushURI, reply(503, ""), reply(503, "", "Retry-After", "25"), reply(202, taskBody))
		c := b.client(liteon, defaults)
		started := time.Now()
		result, err := c.PushPowerUnits(t.Context(), "", image(9000))
		require.NoError(t, err)
		require.Equal(t, redfish.TaskByID("7"), result.Task)
		require.Equal(t, 35*time.Second, time.Since(started))
		posts := b.requests("POST", pushURI)
		require.Len(t, posts, 3)
		require.Empty(t, posts[2].header.Get("LiteonPowerDeviceId"))

		b.on("POST "+pushURI, reply(200, `{"Result":"success"}`))
		result, err = c.PushPowerUnits(t.Context(), "", image(9000))
		require.NoError(t, err)
		require.True(t, result.Task.IsZero(), "only the units can tell")
	})
	for name, answer := range map[string]struct {
		h     http.HandlerFunc
		posts int
		code  redfish.ErrorCode
	}{
		"busy to the end":            {reply(503, ""), 3, redfish.CodeUnavailable},
		"refused":                    {reply(400, ""), 1, redfish.CodeInternal},
		"credentials":                {reply(401, ""), 1, redfish.CodeUnauthenticated},
		"a lost answer may be a yes": {cut, 1, redfish.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newPipeBMC(t)
				defer b.close()
				b.updateService(`{"HttpPushUri":"` + pushURI + `"}`)
				b.on("POST "+pushURI, answer.h)
				_, err := b.client(liteon, defaults).PushPowerUnits(t.Context(), "", image(9))
				require.Equal(t, answer.code, redfish.CodeOf(err))
				require.Len(t, b.requests("POST", pushURI), answer.posts)
			})
		})
	}
}

func TestPushToOnePowerUnit(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on("POST "+unitsURI+"/Actions/UpdateService/", reply(200, `{"Result":"success"}`))
	_, err := b.client(liteon).PushPowerUnits(t.Context(), "powerdevice5", image(9))
	require.NoError(t, err)
	posts := b.requests("POST", "/")
	require.Len(t, posts, 1)
	require.Equal(t, "5", posts[0].header.Get("LiteonPowerDeviceId"))
	_, err = b.client(delta).PushPowerUnits(t.Context(), "", image(9))
	require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(err))
}

func TestInventoryListsPowerUnits(t *testing.T) {
	t.Parallel()
	b := newBMC(t)
	b.on(inventoryURI, ok(members(inventoryURI+"/mcu", inventoryURI+"/powerdevice0", inventoryURI+"/powerdevice1")))
	b.on(inventoryURI+"/mcu", ok(`{"Id":"mcu","Version":"1"}`))
	b.on(inventoryURI+"/powerdevice0", ok(`{"Id":"powerdevice0","Version":"0xf0 / 0xf0","Updateable":true}`))
	b.on(inventoryURI+"/powerdevice1", ok(`{"Id":"powerdevice1","Updateable":false}`))
	c := b.client(liteon)
	items, err := c.FirmwareInventory(t.Context())
	require.NoError(t, err, "a shelf without the collection has none to add")
	require.Len(t, items, 3)

	b.on(unitsURI, ok(members(unitsURI+"/powerdevice0", unitsURI+"/powerdevice1", unitsURI+"/powerdevice2", unitsURI+"/powerdevice3")))
	b.on(unitsURI+"/powerdevice1", unit("powerdevice1", "0xf1 / 0xf1", "0", "OK"))
	b.on(unitsURI+"/powerdevice2", unit("powerdevice2", "0xf2 / 0xf2", "0", "ok"))
	b.on(unitsURI+"/powerdevice3", reply(500, ""))
	items, err = c.FirmwareInventory(t.Context())
	failed, is := errors.AsType[*redfish.InventoryError](err)
	require.True(t, is)
	require.Len(t, failed.Members, 1)
	require.Equal(t, unitsURI+"/powerdevice3", failed.Members[0].URI)
	require.Len(t, items, 4)
	require.Empty(t, b.requests("GET", unitsURI+"/powerdevice0"), "what the inventory tells is not read again")
	require.Equal(t, "0xf1 / 0xf1", items[2].Version)
	require.False(t, items[2].Updateable)
	require.Equal(t, redfish.FirmwareItem{Name: "powerdevice2", URI: unitsURI + "/powerdevice2", Version: "0xf2 / 0xf2",
		Model: "PS", Updateable: true, Health: "OK"}, items[3])

	b.on(unitsURI, reply(503, ""))
	_, err = c.FirmwareInventory(t.Context())
	require.ErrorAs(t, err, &failed)
	b.on(unitsURI, reply(403, ""))
	_, err = c.FirmwareInventory(t.Context())
	require.True(t, asError(t, err).CredentialFault())
	_, err = b.client(delta).FirmwareInventory(t.Context())
	require.NoError(t, err, "other shelves have no such collection")
}
