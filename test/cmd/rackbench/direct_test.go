// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func startTray(t *testing.T) (*sim.Rack, *direct) {
	t.Helper()
	r, err := sim.Start(t.Context(), sim.Options{Compute: 1, Timing: bmc.Timing{Task: time.Millisecond}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	dev := r.Devices()[0]
	d := newDirect([]*rackmanager.NodeInfo{{BmcEndpoint: &rackmanager.Endpoint{
		Interface: &rackmanager.NetworkInterface{IpAddress: dev.IP()}, Port: uint32(dev.Port()),
		Credentials: &rackmanager.Credentials{Auth: &rackmanager.Credentials_UserPass{
			UserPass: &rackmanager.UsernamePassword{Username: dev.Username(), Password: dev.Password()},
		}},
	}}})
	t.Cleanup(d.close)
	return r, d
}

func TestDirectReads(t *testing.T) {
	_, d := startTray(t)
	require.NoError(t, d.power(t.Context(), 0))
	require.NoError(t, d.inventory(t.Context(), 0))
}

// The plain client must leave out nothing that the agent does, or the comparison
// is worth nothing.
func TestDirectUpdate(t *testing.T) {
	r, d := startTray(t)
	image, err := writePackage(t.TempDir())
	require.NoError(t, err)
	d.poll = time.Millisecond
	require.NoError(t, d.update(t.Context(), 0, image, newLimits()))

	requests := map[string]int{}
	for _, e := range r.Requests(r.Devices()[0].ID(), reqlog.Filter{}) {
		require.Less(t, e.Status, 300, e.Path)
		switch {
		case e.Method == http.MethodPost:
			requests["upload"]++
		case strings.HasPrefix(e.Path, inventoryPath+"/"):
			requests["inventory member"]++
		case e.Path == inventoryPath:
			requests["inventory"]++
		case strings.HasPrefix(e.Path, chassisPath+"/"):
			requests["chassis"]++
		case strings.HasPrefix(e.Path, tasksPath+"/"):
			requests["task"]++
		default:
			requests[e.Path]++
		}
	}
	require.Positive(t, requests["task"])
	delete(requests, "task") // as many as the task takes
	require.Equal(t, map[string]int{
		"inventory": 2, "inventory member": 2 * 25, chassisPath: 1, "chassis": 16, tasksPath: 2,
		updatePath: readyReads + 1, managerPath: 1, "upload": 1,
	}, requests)
}

func TestPercentile(t *testing.T) {
	var none []time.Duration
	require.Zero(t, percentile(none, 50))
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	require.EqualValues(t, 50, percentile(hundred, 50))
	require.EqualValues(t, 99, percentile(hundred, 99))
	require.EqualValues(t, 1, percentile(hundred[:1], 99))
}
