// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// recordedTray is a Redfish tree taken from a real tray; it is not part of this
// repository.
const recordedTray = "../../../shared/recordings/gb-tray.tar.gz"

// recordedBMC serves the recording from memory.
func recordedBMC(t *testing.T) *bmc {
	t.Helper()
	f, err := os.Open(filepath.FromSlash(recordedTray))
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("the recorded tray is not here (%s): nothing is tested against a real device's tree", recordedTray)
	}
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b := newBMC(t)
	archive := tar.NewReader(z)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return b
		}
		require.NoError(t, err)
		path, isFile := strings.CutSuffix("/"+strings.TrimPrefix(h.Name, "./"), "/index.json")
		if !isFile {
			continue
		}
		body, err := io.ReadAll(archive)
		require.NoError(t, err)
		b.on("GET "+path, ok(string(body)))
	}
}

func TestRecordedTray(t *testing.T) {
	t.Parallel()
	b := recordedBMC(t)
	b.on("POST "+resetURI, reply(204, ""))
	const aux = "/redfish/v1/Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset"
	b.on("POST "+aux, reply(204, ""))
	const managerReset = "/redfish/v1/Managers/BMC_0/Actions/Manager.Reset"
	b.on("POST "+managerReset, reply(204, ""))
	ctx := t.Context()
	c := b.client(gb200)

	power, err := c.PowerState(ctx)
	require.NoError(t, err)
	require.Equal(t, redfish.PowerStateOn, power.State)

	_, err = c.DeviceInfo(ctx)
	require.ErrorIs(t, err, redfish.ErrNoDeviceInfo)

	items, err := c.FirmwareInventory(ctx)
	require.NoError(t, err)
	require.Len(t, items, 20)
	for _, item := range items {
		require.NotEmpty(t, item.Name)
		require.True(t, strings.HasPrefix(item.URI, inventoryURI+"/"))
		require.NotEmpty(t, item.Health)
	}
	report := redfish.CompareVersions([]redfish.ExpectedVersion{
		{Name: "FW_BMC_0", Version: "gh200-24.05-2"},
		{Name: inventoryURI + "/HGX_FW_CPU_0", Version: "01.02.04"}, // padded with blanks on the device
	}, items)
	require.Equal(t, redfish.VersionMatched, report.Status)

	svc, err := c.UpdateService(ctx)
	require.NoError(t, err)
	require.Equal(t, multipartURI, svc.MultipartURI)
	require.Equal(t, pushURI, svc.PushURI)
	require.Empty(t, svc.SimpleUpdateURI)
	require.EqualValues(t, 209715200, svc.MaxImageSize)
	require.EqualValues(t, "OnReset", svc.ApplyTime)

	require.NoError(t, c.WaitReady(ctx))
	require.NoError(t, c.CheckWritable(ctx))
	require.NoError(t, c.WaitBackgroundCopy(ctx, nil))
	_, found, err := c.RunningUpdateTask(ctx, true)
	require.NoError(t, err)
	require.False(t, found)

	require.NoError(t, c.Power(ctx, redfish.PowerForceRestart))
	require.NoError(t, c.AuxCycle(ctx))
	state, err := c.ResetManager(ctx, false)
	require.NoError(t, err)
	require.True(t, state.Accepted)
	require.Equal(t, "2024-08-22T22:58:46+00:00", state.LastResetTime)
	require.InDelta(t, 75864.4, state.UptimeSeconds, 0.01)
	for path, body := range map[string]string{
		resetURI:     `{"ResetType":"ForceRestart"}`,
		aux:          `{"ResetType":"AuxPowerCycle"}`,
		managerReset: `{"ResetType":"GracefulRestart"}`,
	} {
		posts := b.requests(http.MethodPost, path)
		require.Len(t, posts, 1, path)
		require.JSONEq(t, body, posts[0].body)
	}
}
