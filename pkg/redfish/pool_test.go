// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newPipeBMC(t)
		defer b.close()
		var opened, closed atomic.Int32
		hook := b.srv.Config.ConnState
		b.srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				opened.Add(1)
			case http.StateClosed:
				closed.Add(1)
			default:
			}
			hook(c, s)
		}
		b.system(`"On"`)
		b.on("POST "+resetURI, reply(204, ""))
		c := b.client(gb200, defaults)
		for range 3 {
			_, err := c.PowerState(t.Context())
			require.NoError(t, err)
		}
		require.EqualValues(t, 1, opened.Load(), "reads share a connection")
		require.NoError(t, c.Power(t.Context(), redfish.PowerOn))
		require.EqualValues(t, 2, opened.Load(), "a change gets its own")
		time.Sleep(3 * time.Second) // fake time: longer than the idle limit
		synctest.Wait()
		require.EqualValues(t, 2, closed.Load())
	})
}

func TestThousandsOfClientsAreCheap(t *testing.T) {
	const n = 10_000
	b := newBMC(t)
	b.system(`"On"`)
	clients := make([]*redfish.Client, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p := profile(t, gb200)
	for i := range clients {
		c, err := redfish.New(b.endpoint, redfish.Options{Profile: p, Pool: b.pool, Guard: redfish.Unguarded{}})
		require.NoError(t, err)
		clients[i] = c
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
	require.Less(t, each, int64(4096), "bytes per client")
	for _, c := range clients[:20] {
		_, err := c.PowerState(t.Context())
		require.NoError(t, err)
	}
	runtime.KeepAlive(clients)
}
