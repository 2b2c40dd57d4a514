// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		o    sim.Options
	}{
		{"no devices", sim.Options{}},
		{"negative", sim.Options{Compute: -1, PowerShelves: 2}},
		{"listen", sim.Options{Compute: 1, Listen: "localhost"}},
		{"ports", sim.Options{Compute: 2, PortBase: 65535}},
		{"generation", sim.Options{Compute: 1, ComputeGeneration: "gb100"}},
		{"outage", sim.Options{Compute: 1, Outage: "shrug"}},
		{"control is not loopback", sim.Options{Compute: 1, Control: "0.0.0.0:0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := sim.Start(t.Context(), tt.o)
			require.ErrorIs(t, err, sim.ErrInvalidOption)
		})
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = sim.Start(t.Context(), sim.Options{Compute: 1, PortBase: l.Addr().(*net.TCPAddr).Port})
	require.Error(t, err)
	require.NotErrorIs(t, err, sim.ErrInvalidOption)
}

func TestNodeSetIsDeterministic(t *testing.T) {
	t.Parallel()
	o := sim.Options{Compute: 2, PowerShelves: 1, Seed: 42, RackID: "r7", ComputeGeneration: sim.Mixed}
	a, b := start(t, o), start(t, o)
	o.Seed = 43
	other := start(t, o)
	seen := map[string]bool{}
	for i, d := range a.Devices() {
		require.Equal(t, d.MAC(), b.Devices()[i].MAC())
		require.Equal(t, d.Versions(), b.Devices()[i].Versions())
		require.NotEqual(t, d.MAC(), other.Devices()[i].MAC())
		hw, err := net.ParseMAC(d.MAC())
		require.NoError(t, err)
		require.Equal(t, byte(2), hw[0]&3, "local and unicast")
		require.False(t, seen[d.MAC()])
		seen[d.MAC()] = true
	}
	nodes := a.NodeSet().Nodes
	require.Len(t, nodes, 3)
	raw, err := json.Marshal(nodes[2])
	require.NoError(t, err)
	d := a.Devices()[2]
	want, err := json.Marshal(obj{
		"nodeId": "powershelf-0001", "rackId": "r7", "type": "POWERSHELF_GB200_LITEON",
		"bmcEndpoint": obj{"interface": obj{"ipAddress": "127.0.0.1", "macAddress": d.MAC()}, "port": d.Port(),
			"credentials": obj{"userPass": obj{"username": "admin", "password": "racksim-pw"}}},
	})
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(raw))
	require.Equal(t, "COMPUTE_GB300_NVIDIA", nodes[1].Type)
}

// lines is a writer whose JSON lines can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) all(t *testing.T) (out []obj) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := bufio.NewScanner(bytes.NewReader(l.b.Bytes()))
	for s.Scan() {
		var line obj
		require.NoError(t, json.Unmarshal(s.Bytes(), &line))
		out = append(out, line)
	}
	return out
}

func TestRequestLog(t *testing.T) {
	t.Parallel()
	var out lines
	rack := start(t, sim.Options{Compute: 1, RequestLog: &out})
	d := rack.Devices()[0]
	c := newClient(t, rack, d)
	began := time.Now()
	c.do("GET", system+"?x=1", nil, "User-Agent", "probe/1")
	c.hostReset("ForceOff")
	c.post(root+"/Nothing", obj{"unread": true})
	require.Eventually(t, func() bool { return len(out.all(t)) == 3 }, 20*time.Second, time.Millisecond, "flushed while open")
	log := out.all(t)

	at, err := time.Parse(time.RFC3339Nano, log[0]["time"].(string))
	require.NoError(t, err)
	require.WithinDuration(t, began, at, 20*time.Second)
	want := obj{"device": d.ID(), "method": "GET", "path": system, "query": "x=1", "status": 200.0, "bytes": 0.0,
		"complete": true, "user_agent": "probe/1"}
	for k, want := range want {
		require.Equal(t, want, log[0][k], k)
	}
	require.Equal(t, float64(len(`{"ResetType":"ForceOff"}`)), log[1]["bytes"])
	require.Equal(t, 204.0, log[1]["status"])
	require.Equal(t, true, log[1]["complete"])
	require.Equal(t, 404.0, log[2]["status"])
	require.Equal(t, true, log[2]["complete"], "small unread bodies are received")

	require.Len(t, rack.Requests(d.ID(), reqlog.Filter{Writes: true}), 2)
	require.Empty(t, rack.Requests("other-*", reqlog.Filter{}))
	require.Len(t, rack.Requests("", reqlog.Filter{Path: "/redfish/v1/Systems/*"}), 1)
}

// TestPartialUpload breaks an upload off and expects it in the log, and no task.
func TestPartialUpload(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"multipart", "push"} {
		t.Run(kind, func(t *testing.T) {
			var out lines
			rack := start(t, sim.Options{Compute: 1, RequestLog: &out})
			d := rack.Devices()[0]
			c := newClient(t, rack, d)
			file := bytes.Repeat([]byte("x"), 1<<20)
			body, contentType := multipartBody(t, noTargets, "bmc_2.bin", file, "")
			path := update + "/update-multipart"
			if kind == "push" {
				body, contentType, path = bytes.NewBuffer(file), "application/octet-stream", update+"/update"
			}
			ctx, cancel := context.WithCancel(t.Context())
			reader := &stopping{Reader: body, left: 300 << 10, stop: cancel}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL()+path, reader)
			require.NoError(t, err)
			r.ContentLength = int64(body.Len())
			r.Header.Set("Content-Type", contentType)
			r.SetBasicAuth(c.user, c.pass)
			resp, err := c.http.Do(r)
			if err == nil {
				require.NoError(t, resp.Body.Close())
			}
			require.ErrorIs(t, err, context.Canceled)

			got, err := rack.WaitRequests(t.Context(), d.ID(), reqlog.Filter{Uploads: true}, 1)
			require.NoError(t, err)
			require.False(t, got[0].Complete)
			require.Zero(t, got[0].Status)
			require.Less(t, got[0].Bytes, int64(1<<20))
			require.NotEmpty(t, got[0].SHA256)
			require.Empty(t, d.Tasks())
			require.Eventually(t, func() bool { return len(out.all(t)) == 1 }, 20*time.Second, time.Millisecond)
			require.Equal(t, false, out.all(t)[0]["complete"])
		})
	}
}

// stopping cancels the request once some bytes have been read.
type stopping struct {
	io.Reader
	left int
	stop context.CancelFunc
}

func (s *stopping) Read(b []byte) (int, error) {
	if s.left <= 0 {
		s.stop()
		return 0, context.Canceled
	}
	n, err := s.Reader.Read(b[:min(len(b), s.left)])
	s.left -= n
	return n, err
}

func TestManyDevices(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 1150, PowerShelves: 50, ComputeGeneration: sim.Mixed})
	require.Len(t, rack.Devices(), 1200)
	ips := map[string]bool{}
	for _, d := range rack.Devices() {
		require.False(t, ips[d.IP()], d.IP())
		ips[d.IP()] = true
		require.Equal(t, rack.Devices()[0].Port(), d.Port())
	}
	for _, id := range []string{"compute-0001", "compute-0254", "compute-0255", "compute-1150", "powershelf-0050"} {
		d := rack.Device(id)
		c := newClient(t, rack, d)
		path := system
		if d.Model().Shelf() {
			path = root + "/Chassis/powershelf"
		} else {
			require.Equal(t, 204, c.hostReset("ForceOff").status)
		}
		require.Equal(t, 200, c.get(path).status)
		require.NotEmpty(t, rack.Requests(id, reqlog.Filter{}))
	}
	require.Equal(t, "Off", rack.Device("compute-0255").PowerState())
	require.Equal(t, "On", rack.Device("compute-0256").PowerState(), "devices are apart")

	refusing := newClient(t, rack, rack.Device("compute-0300"))
	refusing.d.SetKnobs(bmc.Knobs{Outage: bmc.OutageRefuse})
	refusing.d.SetReachable(false)
	_, err := refusing.try("GET", root, "")
	require.ErrorIs(t, err, syscall.ECONNRESET)
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(refusing.d.Port())))
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.Error(t, err, "no device has this address")
}
