// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestSwitches(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	rack, err := sim.Start(t.Context(), sim.Options{
		Compute: 1, Switches: 2, SwitchGeneration: sim.Mixed, SwitchPassword: "os-pw", RequestLog: &lines,
		NodeTypes: []sim.NodeTypeCount{{Type: "switch_vrnvl72_nvidia", Count: 1}},
	})
	require.NoError(t, err)
	defer rack.Close()
	require.Len(t, rack.Devices(), 1)
	require.Len(t, rack.Switches(), 3)
	nodes := rack.NodeSet().Nodes
	require.Len(t, nodes, 4)
	for i, kind := range []string{"SWITCH_GB200_NVIDIA", "SWITCH_GB300_NVIDIA", "SWITCH_VRNVL72_NVIDIA"} {
		n, s := nodes[i+1], rack.Switches()[i]
		require.Equal(t, kind, n.Type)
		require.Equal(t, fmt.Sprintf("switch-%04d", i+1), n.NodeID)
		require.Equal(t, fmt.Sprintf("127.2.0.%d", i+1), n.HostEndpoint.Interface.IPAddress)
		require.Equal(t, rack.SwitchPorts().NVUE, n.HostEndpoint.Port)
		require.Equal(t, rack.SwitchPorts().BMC, n.BMCEndpoint.Port)
		require.Equal(t, rack.SwitchPorts(), s.Ports())
		require.Equal(t, "os-pw", n.HostEndpoint.Credentials.UserPass.Password)
		require.Same(t, s, rack.Switch(n.NodeID))
	}
	require.Nil(t, rack.Switch("switch-0009"))

	nvue := newClient(t, rack, rack.Devices()[0])
	nvue.http.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	ask := func(s *nvswitch.Switch, path string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr("nvue")+path, nil)
		require.NoError(t, err)
		r.SetBasicAuth(s.Username(), s.Password())
		res, err := nvue.http.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	first := rack.Switches()[0]
	require.Equal(t, 200, ask(first, "/nvue_v1/system"))
	_, err = rack.AddFault(faults.Rule{Device: "switch-*", Selector: faults.Request("", "/nvue_v1/**"), Action: faults.Action{Status: &faults.Status{Code: 500}}, Remaining: 1})
	require.NoError(t, err)
	require.Equal(t, 500, ask(first, "/nvue_v1/system"))
	require.Len(t, rack.Requests("switch-*", reqlog.Filter{Protocol: reqlog.NVUE}), 2)

	id, err := rack.AddFault(faults.Rule{Device: first.ID(), Action: faults.Action{Refuse: true}})
	require.NoError(t, err)
	_, err = net.Dial("tcp", first.Addr("ssh"))
	require.ErrorContains(t, err, "refused")
	require.True(t, rack.RemoveFault(id))
	require.Equal(t, 200, ask(first, "/nvue_v1/system"))
	require.NoError(t, rack.Close())
	require.Contains(t, lines.String(), `"protocol":"nvue"`)
}

func TestSwitchControl(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Switches: 1, Control: "127.0.0.1:0", SwitchTiming: nvswitch.Timing{Reboot: time.Millisecond}})
	base := "http://" + rack.ControlAddr() + "/sim/switches"
	send := func(method, path, body string, into any) int {
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		if into != nil {
			require.NoError(t, json.NewDecoder(res.Body).Decode(into))
		}
		return res.StatusCode
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	var all []struct {
		ID    string
		Ports nvswitch.Ports
	}
	require.Equal(t, 200, send(http.MethodGet, "", "", &all))
	require.Equal(t, rack.SwitchPorts(), all[0].Ports)
	require.Equal(t, 200, send(http.MethodPatch, "/switch-0001/knobs", `{"login_delay":"5ms","sftp":{"corrupt":true}}`, nil))
	require.True(t, rack.Switches()[0].Knobs().SFTP.Corrupt)
	require.Equal(t, 400, send(http.MethodPatch, "/switch-0001/knobs", `{"refuse":7}`, nil))
	require.Equal(t, 204, send(http.MethodPost, "/switch-0001/restart", "", nil))
	require.Equal(t, 1, rack.Switches()[0].Reboots())
	require.Equal(t, 404, send(http.MethodGet, "/switch-0002", "", nil))
}

func TestSwitchesLosePowerWithTheShelves(t *testing.T) {
	t.Parallel()
	rack := start(t, sim.Options{Switches: 1, PowerShelves: 1, CoupledPower: true, SwitchTiming: nvswitch.Timing{Reboot: time.Millisecond}})
	c, s := newClient(t, rack, rack.Devices()[0]), rack.Switches()[0]
	const actions = root + "/Chassis/powershelf/Actions/Chassis."
	c.post(actions+"ForceOff", obj{"ForceOffType": "ForceOff"})
	require.False(t, s.Up())
	_, err := net.Dial("tcp", s.Addr("bmc"))
	require.ErrorContains(t, err, "refused")
	c.post(actions+"On", obj{"OnType": "On"})
	require.Eventually(t, s.Up, 20*time.Second, time.Millisecond)
}
