// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func (c *client) try(method, path string, body string) (reply, error) {
	var in io.Reader
	header := http.Header{}
	if body != "" {
		in = strings.NewReader(body)
		header.Set("Content-Type", "application/json")
	}
	return c.request(c.t.Context(), method, path, in, header)
}

func TestFaultAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rule  string
		check func(t *testing.T, got reply)
	}{
		{"merge", `{"selector":{"odata_id":"/redfish/v1/Systems/*"},"action":{"JsonMerge":{"PowerState":null,"Model":"odd"}}}`,
			func(t *testing.T, got reply) {
				require.Equal(t, 200, got.status)
				require.Nil(t, got.get("PowerState"))
				require.Equal(t, "odd", got.get("Model"))
				require.Equal(t, "System_0", got.get("Id"))
			}},
		{"replace", `{"selector":"/redfish/v1/Systems/System_0","action":{"replace":{"a":1}}}`,
			func(t *testing.T, got reply) { require.Equal(t, obj{"a": 1.0}, got.doc) }},
		{"replace by HTML", `{"action":{"replace":"<html>"}}`, func(t *testing.T, got reply) {
			require.Equal(t, "<html>", string(got.raw))
			require.Equal(t, "text/html", got.header.Get("Content-Type"))
		}},
		{"status", `{"selector":"any","action":{"status":503}}`, func(t *testing.T, got reply) {
			require.Equal(t, 503, got.status)
			require.NotEmpty(t, errorID(got))
		}},
		{"status with all", `{"selector":{"path":"/redfish/v1/**","method":"get"},"action":{"status":{"code":429,"body":{"x":"y"},"headers":{"Retry-After":"7"}}}}`,
			func(t *testing.T, got reply) {
				require.Equal(t, 429, got.status)
				require.Equal(t, "7", got.header.Get("Retry-After"))
				require.Equal(t, "y", got.get("x"))
			}},
		{"redirect without body", `{"action":{"status":{"code":308,"empty":true,"headers":{"Location":"https://other/"}}}}`,
			func(t *testing.T, got reply) {
				require.Equal(t, 308, got.status)
				require.Empty(t, got.raw)
			}},
		{"malformed", `{"action":"Malformed"}`, func(t *testing.T, got reply) {
			require.Equal(t, 200, got.status)
			require.NotEmpty(t, got.raw)
			require.False(t, json.Valid(got.raw))
		}},
		{"latency", `{"action":{"latency":{"mean":"60ms","jitter":0.01}}}`, func(t *testing.T, got reply) {
			require.Equal(t, 200, got.status)
		}},
		{"other device", `{"device":"powershelf-*","action":{"status":503}}`, func(t *testing.T, got reply) {
			require.Equal(t, 200, got.status)
		}},
		{"other method", `{"selector":{"path":"/redfish/v1/**","method":"POST"},"action":{"status":503}}`, func(t *testing.T, got reply) {
			require.Equal(t, 200, got.status)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rack, d, c := tray(t)
			rules, err := faults.Load(strings.NewReader("[" + tt.rule + "]"))
			require.NoError(t, err)
			_, err = rack.AddFault(rules[0])
			require.NoError(t, err)
			tt.check(t, c.get(system))
			if tt.name == "latency" {
				require.GreaterOrEqual(t, rack.Requests(d.ID(), reqlog.Filter{})[0].DurationMS, 50.0)
			}
			rack.ClearFaults()
			require.Equal(t, "On", c.get(system).get("PowerState"))
		})
	}
}

func TestFaultRemaining(t *testing.T) {
	t.Parallel()
	rack, _, c := tray(t)
	id, err := rack.AddFault(faults.Rule{
		Selector: faults.Request("POST", reset), Action: faults.Action{Status: &faults.Status{Code: 409}}, Remaining: 2,
	})
	require.NoError(t, err)
	require.Equal(t, 200, c.get(system).status)
	require.Equal(t, 409, c.hostReset("ForceOff").status)
	require.Equal(t, 1, rack.Faults()[0].Remaining)
	require.Equal(t, 409, c.hostReset("ForceOff").status)
	require.Empty(t, rack.Faults())
	require.Equal(t, "On", c.get(system).get("PowerState"), "refused requests are not executed")
	require.Equal(t, 204, c.hostReset("ForceOff").status)
	require.False(t, rack.RemoveFault(id))

	log := rack.Requests("", reqlog.Filter{Writes: true})
	require.Equal(t, []string{id, id, ""}, []string{log[0].Fault, log[1].Fault, log[2].Fault})
	require.Equal(t, []int{409, 409, 204}, []int{log[0].Status, log[1].Status, log[2].Status})
}

func TestCuts(t *testing.T) {
	t.Parallel()
	body := `{"ResetType":"ForceOff"}`
	tests := []struct {
		name     string
		cut      faults.Cut
		executed bool
		status   int
		complete bool
	}{
		{"before", faults.Cut{}, false, 0, false},
		{"after execution", faults.Cut{AfterExecute: true}, true, 0, false},
		{"in the request", faults.Cut{RequestBytes: 5}, false, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rack, d, c := tray(t)
			_, err := rack.AddFault(faults.Rule{
				Selector: faults.Request("POST", "/redfish/**"), Action: faults.Action{Cut: &tt.cut}, Remaining: 1,
			})
			require.NoError(t, err)
			_, err = c.try("POST", reset, body)
			require.Error(t, err)
			require.Equal(t, tt.executed, d.PowerState() == "Off")
			log, err := rack.WaitRequests(t.Context(), d.ID(), reqlog.Filter{Method: "POST"}, 1)
			require.NoError(t, err)
			require.Equal(t, tt.status, log[0].Status)
			require.False(t, log[0].Complete)
		})
	}
	t.Run("in the answer", func(t *testing.T) {
		rack, d, c := tray(t)
		_, err := rack.AddFault(faults.Rule{Action: faults.Action{Cut: &faults.Cut{Bytes: 20}}, Remaining: 1})
		require.NoError(t, err)
		got, err := c.try("GET", system, "")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, 200, got.status)
		require.Len(t, got.raw, 20)
		log, err := rack.WaitRequests(t.Context(), d.ID(), reqlog.Filter{}, 1)
		require.NoError(t, err)
		require.Equal(t, 200, log[0].Status)
		require.False(t, log[0].Complete)
	})
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	t.Run("without limit the port is closed", func(t *testing.T) {
		rack, _, c := tray(t)
		c.get(system)
		id, err := rack.AddFault(faults.Rule{Device: "compute-*", Action: faults.Action{Refuse: true}})
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := c.try("GET", system, "")
			return errors.Is(err, syscall.ECONNREFUSED)
		}, 20*time.Second, time.Millisecond)
		require.True(t, rack.RemoveFault(id))
		require.Equal(t, 200, c.get(system).status)
	})
	t.Run("a number of connections is reset", func(t *testing.T) {
		rack, _, c := tray(t)
		c.get(system)
		_, err := rack.AddFault(faults.Rule{Action: faults.Action{Refuse: true}, Remaining: 2})
		require.NoError(t, err)
		// POST: the Go client repeats nothing on its own.
		for len(rack.Faults()) > 0 {
			_, err := c.try("POST", reset, `{"ResetType":"On"}`)
			require.Error(t, err)
		}
		require.Equal(t, 200, c.get(system).status)
	})
}

func TestRefusingOutage(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 1, Outage: bmc.OutageRefuse, Timing: bmc.Timing{BMCOutage: time.Second}})
	d := rack.Devices()[0]
	c := newClient(t, rack, d)
	refused := func() {
		_, err := c.try("GET", root, "")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	got := c.post(root+"/Managers/BMC_0/Actions/Manager.Reset", obj{"ResetType": "ForceRestart"})
	require.Equal(t, 200, got.status, "the answer comes before the outage")
	require.Eventually(t, func() bool {
		_, err := c.try("GET", root, "")
		return errors.Is(err, syscall.ECONNREFUSED)
	}, 20*time.Second, time.Millisecond)
	c.awaitUp()

	d.Restart()
	refused()
	c.awaitUp()

	d.SetReachable(false)
	refused()
	d.SetReachable(true)
	require.Equal(t, 200, c.get(root).status)
	require.Equal(t, 2, d.Resets())
}

func TestSilentDeviceHoldsOnlyItsClient(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 2})
	slow, quick := newClient(t, rack, rack.Devices()[0]), newClient(t, rack, rack.Devices()[1])
	_, err := rack.AddFault(faults.Rule{Device: "compute-0001", Action: faults.Action{Latency: &faults.Latency{Mean: time.Hour}}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	hung := make(chan error)
	go func() {
		_, err := slow.request(ctx, "GET", system, nil, nil)
		hung <- err
	}()
	inFlight, err := rack.WaitInFlight(t.Context(), "compute-0001", reqlog.Filter{Path: system})
	require.NoError(t, err)
	require.Equal(t, "GET", inFlight.Method)
	require.Equal(t, 200, quick.get(system).status)
	cancel()
	require.ErrorIs(t, <-hung, context.Canceled)
	log, err := rack.WaitRequests(t.Context(), "compute-0001", reqlog.Filter{}, 1)
	require.NoError(t, err)
	require.False(t, log[0].Complete)
	require.Zero(t, log[0].Status)
}

func TestControl(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Compute: 1, Control: "127.0.0.1:0"})
	c := newClient(t, rack, rack.Devices()[0])
	base := "http://" + rack.ControlAddr() + "/sim/"
	call := func(method, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := c.http.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		raw, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, strings.TrimSpace(string(raw))
	}
	status, body := call("POST", "faults", `{"id":"a","action":{"status":500}}`)
	require.Equal(t, 200, status, body)
	require.Equal(t, `{"ids":["a"]}`, body)
	require.Equal(t, 500, c.get(system).status)
	status, body = call("POST", "faults", `[{"id":"b","action":{"latency":{"mean":"1ms"}}}]`)
	require.Equal(t, 200, status, body)
	status, body = call("GET", "faults", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `[{"id":"a","action":{"Status":{"code":500}}},{"id":"b","action":{"Latency":{"mean":"1ms"}}}]`, body)
	status, _ = call("DELETE", "faults/a", "")
	require.Equal(t, 204, status)
	require.Equal(t, 200, c.get(system).status)
	status, _ = call("DELETE", "faults/a", "")
	require.Equal(t, 404, status)
	status, _ = call("DELETE", "faults", "")
	require.Equal(t, 204, status)
	require.Empty(t, rack.Faults())
	status, _ = call("POST", "faults", `{"action":{}}`)
	require.Equal(t, 400, status)

	status, _ = call("PATCH", "devices/compute-0001/knobs", `{"task_stuck_at":7}`)
	require.Equal(t, 200, status)
	require.Equal(t, 7, rack.Devices()[0].Knobs().TaskStuckAt)
	status, _ = call("PATCH", "devices/compute-0001/knobs", `{"nonsense":7}`)
	require.Equal(t, 400, status)
	status, body = call("GET", "devices/compute-0001", "")
	require.Equal(t, 200, status)
	require.Contains(t, body, `"power_state":"On"`)
	status, _ = call("GET", "devices/none", "")
	require.Equal(t, 404, status)
	status, _ = call("GET", "devices", "")
	require.Equal(t, 200, status)
	status, _ = call("POST", "devices/compute-0001/restart", "")
	require.Equal(t, 204, status)
	require.Equal(t, 1, rack.Devices()[0].Resets())
}

func TestMute(t *testing.T) {
	t.Parallel()
	rack, d, c := tray(t)
	require.Equal(t, 200, c.get(system).status)
	var rule faults.Rule
	require.NoError(t, json.Unmarshal([]byte(`{"action":"Mute","remaining":1}`), &rule))
	_, err := rack.AddFault(rule)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", d.Addr())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = conn.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "it takes the connection and says nothing")
	require.Equal(t, 200, c.get(system).status, "the next one is served")

	// A muted connection ends with the rack.
	rule.ID, rule.Remaining = "", 0
	_, err = rack.AddFault(rule)
	require.NoError(t, err)
	second, err := net.Dial("tcp", d.Addr())
	require.NoError(t, err)
	defer second.Close()
	third, err := net.Dial("tcp", d.Addr())
	require.NoError(t, err)
	defer third.Close()
	require.NoError(t, rack.Close())
	require.NoError(t, second.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err = second.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}
