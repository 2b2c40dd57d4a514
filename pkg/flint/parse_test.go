// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const statusText = `MST modules:
------------
    MST PCI module is not loaded
    MST PCI configuration module loaded
PCI devices:
------------
DEVICE_TYPE             MST                           PCI       RDMA            NET                                     NUMA
ConnectX7(rev:0)        /dev/mst/mt4129_pciconf1      03:00.0   mlx5_1          net-ibp3s0                              0
ConnectX7(rev:0)        /dev/mst/mt4129_pciconf0      02:00.0   mlx5_0          net-ibp2s0                              0
BlueField3(rev:1)       /dev/mst/mt41692_pciconf0     01:00.0   mlx5_4          net-eth0                                0
BlueField3(rev:1)       /dev/mst/mt41692_pciconf0.1   01:00.1   mlx5_5          net-eth1                                0
GB100(rev:0)            /dev/mst/netir0               09:00.0                                                           0

Inband devices:
-------------------
ConnectX7(rev:0)        /dev/mst/CA_MT4129_lid-0x0001
`

func TestParseDevices(t *testing.T) {
	got, err := ParseDevices(statusText)
	require.NoError(t, err)
	require.Equal(t, []Device{
		{Kind: KindCX7, Path: "/dev/mst/mt4129_pciconf1"}, {Kind: KindCX7, Path: "/dev/mst/mt4129_pciconf0"},
		{Kind: KindBF3, Path: "/dev/mst/mt41692_pciconf0"},
	}, got)
	for name, tt := range map[string]struct {
		text string
		want []Device
		fail bool
	}{
		"empty":            {text: "", fail: true},
		"no header":        {text: "ConnectX7(rev:0) /dev/mst/a 01:00.0", fail: true},
		"header alone":     {text: "DEVICE_TYPE MST PCI"},
		"capital letters":  {text: "DEVICE_TYPE MST\nCONNECTX8(rev:0) /dev/mst/mt4131_pciconf0", want: []Device{{Kind: KindCX8, Path: "/dev/mst/mt4131_pciconf0"}}},
		"no revision":      {text: "DEVICE_TYPE MST\nconnectx8 /dev/mst/a", want: []Device{{Kind: KindCX8, Path: "/dev/mst/a"}}},
		"two digits":       {text: "DEVICE_TYPE MST\nConnectX7 /dev/mst/a.10", want: []Device{{Kind: KindCX7, Path: "/dev/mst/a.10"}}},
		"twice":            {text: "DEVICE_TYPE MST\nConnectX7 /dev/mst/a\nConnectX7 /dev/mst/a", want: []Device{{Kind: KindCX7, Path: "/dev/mst/a"}}},
		"driver not there": {text: "DEVICE_TYPE MST\nConnectX7(rev:0) NA 01:00.0", fail: true},
		"command in path":  {text: "DEVICE_TYPE MST\nConnectX7 /dev/mst/a';reboot", fail: true},
		"other directory":  {text: "DEVICE_TYPE MST\nConnectX7 /dev/mst/../sda", fail: true},
		"other type":       {text: "DEVICE_TYPE MST\nConnectX6 /dev/mst/a"},
		"very long line":   {text: "DEVICE_TYPE MST\n" + strings.Repeat("x", 1<<20), fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseDevices(tt.text)
			if tt.fail {
				require.ErrorIs(t, err, ErrUnreadable)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestParseQuery(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want Firmware
		fail bool
	}{
		"device": {text: "Image type:            FS4\nFW Version:            28.39.2048\nFW Release Date:       29.10.2023\n" +
			"PSID:                  MT_0000001069\n", want: Firmware{Version: "28.39.2048", PSID: "MT_0000001069"}},
		"reset pending": {text: "FW Version: 28.40.1\nFW Version(Running): 28.39.2\nPSID: P\n",
			want: Firmware{Version: "28.40.1", Running: "28.39.2", PSID: "P"}},
		"carriage returns":  {text: "FW Version: 1.2\r\nPSID: P\r\n", want: Firmware{Version: "1.2", PSID: "P"}},
		"empty":             {fail: true},
		"no version":        {text: "PSID: P", fail: true},
		"empty version":     {text: "FW Version:\nPSID: P", fail: true},
		"no psid":           {text: "FW Version: 1", fail: true},
		"release is no key": {text: "FW Version Extra: 1\nPSID: P", fail: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseQuery(tt.text)
			if tt.fail {
				require.ErrorIs(t, err, ErrUnreadable)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func FuzzParseDevices(f *testing.F) {
	f.Add(statusText)
	f.Add("DEVICE_TYPE MST\nConnectX7 /dev/mst/a.1")
	f.Fuzz(func(t *testing.T, text string) {
		devices, err := ParseDevices(text)
		if err != nil {
			require.ErrorIs(t, err, ErrUnreadable)
		}
		for _, d := range devices {
			// It goes into a command line that root runs.
			require.Regexp(t, `^/dev/mst/[A-Za-z0-9._:-]+$`, d.Path)
			require.NotContains(t, d.Path, "..")
			require.Contains(t, []string{KindCX7, KindCX8, KindBF3}, d.Kind)
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	f.Add("FW Version: 28.39.2048\nFW Version(Running): 28.38.1\nPSID: MT_0000001069\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseQuery(text)
		if err != nil {
			require.ErrorIs(t, err, ErrUnreadable)
			return
		}
		require.NotEmpty(t, got.Version)
		require.NotEmpty(t, got.PSID)
		require.NotContains(t, got.Version+got.PSID+got.Running, " ")
	})
}

func TestCheckDevices(t *testing.T) {
	found := func(kinds ...string) []Device {
		var out []Device
		for _, k := range kinds {
			out = append(out, Device{Kind: k})
		}
		return out
	}
	for name, tt := range map[string]struct {
		found  []Device
		counts map[string]int
		wanted []string
		fail   string
	}{
		"as promised":            {found(KindCX7, KindCX7, KindBF3), map[string]int{KindCX7: 2, KindBF3: 1}, []string{KindCX7}, ""},
		"no profile":             {found(KindCX7), nil, []string{KindCX7}, ""},
		"one is missing":         {found(KindCX7), map[string]int{KindCX7: 2}, []string{KindCX7}, "1 of cx7 found, the profile says 2"},
		"one too many":           {found(KindCX7, KindCX7), map[string]int{KindCX7: 1}, []string{KindCX7}, "2 of cx7"},
		"a kind not updated":     {found(KindCX7), map[string]int{KindBF3: 1}, []string{KindCX7}, "0 of bf3_nic"},
		"unnamed kind may be":    {found(KindCX7, KindBF3), map[string]int{KindCX7: 1}, []string{KindCX7}, ""},
		"none there":             {found(KindCX7), nil, []string{KindBF3}, "no bf3_nic found"},
		"cx7 and cx8, one there": {found(KindCX8), nil, []string{KindCX7, KindCX8}, ""},
		"cx7 and cx8, none":      {found(KindBF3), nil, []string{KindCX7, KindCX8}, "no cx7 found"},
		"cx7 and bf3, one there": {found(KindCX7), nil, []string{KindCX7, KindBF3}, "no bf3_nic found"},
	} {
		err := CheckDevices(tt.found, tt.counts, tt.wanted)
		if tt.fail == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, ErrDevices, name)
		require.ErrorContains(t, err, tt.fail, name)
	}
}

func TestChoose(t *testing.T) {
	device := func(kind, psid string) Device {
		return Device{Kind: kind, Path: "/dev/mst/" + psid, Firmware: Firmware{PSID: psid, Version: "1"}}
	}
	image := func(kind, name, psid, version string) Image {
		return Image{Component: strings.ToUpper(kind), Kind: kind, Name: name, Firmware: Firmware{PSID: psid, Version: version}}
	}
	for name, tt := range map[string]struct {
		devices []Device
		images  []Image
		want    []string
		fail    string
	}{
		"by psid": {[]Device{device(KindCX7, "A"), device(KindCX7, "B")},
			[]Image{image(KindCX7, "b.bin", "B", "2"), image(KindCX7, "a.bin", "A", "2")}, []string{"a.bin", "b.bin"}, ""},
		"one for two devices": {[]Device{device(KindCX7, "A"), device(KindCX7, "A")},
			[]Image{image(KindCX7, "a.bin", "A", "2")}, []string{"a.bin", "a.bin"}, ""},
		"only the kinds given": {[]Device{device(KindCX7, "A"), device(KindBF3, "C")},
			[]Image{image(KindCX7, "a.bin", "A", "2")}, []string{"a.bin"}, ""},
		"preference": {[]Device{device(KindCX7, "A")}, []Image{
			image(KindCX7, "a.pldm", "A", "2"), image(KindCX7, "a.bin", "A", "2"),
			image(KindCX7, "a.signed.pldm", "A", "2"), image(KindCX7, "a.signed.reduced.BIN", "A", "2"),
		}, []string{"a.signed.reduced.BIN"}, ""},
		"signed pldm before bin": {[]Device{device(KindCX7, "A")}, []Image{
			image(KindCX7, "a.bin", "A", "2"), image(KindCX7, "a.signed.pldm", "A", "2")}, []string{"a.signed.pldm"}, ""},
		"tie": {[]Device{device(KindCX7, "A")}, []Image{
			image(KindCX7, "a.bin", "A", "2"), image(KindCX7, "b.bin", "A", "2")}, nil, "equally good"},
		"two versions": {[]Device{device(KindCX7, "A")}, []Image{
			image(KindCX7, "a.bin", "A", "2"), image(KindCX7, "b.pldm", "A", "3")}, nil, "are both for"},
		"other psid": {[]Device{device(KindCX7, "A")}, []Image{image(KindCX7, "b.bin", "B", "2")}, nil, "PSID A"},
		"psid of another kind": {[]Device{device(KindCX7, "A")}, []Image{
			image(KindBF3, "a.bin", "A", "2"), image(KindCX7, "b.bin", "B", "2")}, nil, "PSID A"},
		"no devices": {nil, []Image{image(KindCX7, "a.bin", "A", "2")}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Choose(tt.devices, tt.images)
			if tt.fail != "" {
				require.ErrorIs(t, err, ErrIncompatible)
				require.ErrorContains(t, err, tt.fail)
				return
			}
			require.NoError(t, err)
			var names []string
			for i, m := range got {
				names = append(names, m.Image.Name)
				require.Equal(t, m.Device.PSID, m.Image.PSID, i)
			}
			require.Equal(t, tt.want, names)
		})
	}
}
