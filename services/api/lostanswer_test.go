// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// answerLoser is a TCP proxy in front of a broker that ends the connection in
// place of forwarding one answer.
type answerLoser struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup
	// mark is in the answer to be lost; lost counts how often it was.
	mark []byte
	lost atomic.Int32
}

func loseAnswer(t *testing.T, brokerURL, mark string) *answerLoser {
	t.Helper()
	u, err := url.Parse(brokerURL)
	require.NoError(t, err)
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &answerLoser{l: l, target: u.Host, mark: []byte(mark)}
	p.wg.Go(p.accept)
	t.Cleanup(func() { _ = l.Close(); p.wg.Wait() })
	return p
}

func (p *answerLoser) url() string { return "nats://" + p.l.Addr().String() }

func (p *answerLoser) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		var d net.Dialer
		server, err := d.DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		end := func() { _ = client.Close(); _ = server.Close() }
		p.wg.Go(func() { defer end(); _, _ = io.Copy(server, client) })
		p.wg.Go(func() { defer end(); p.answers(client, server) })
	}
}

func (p *answerLoser) answers(client io.Writer, server io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if bytes.Contains(buf[:n], p.mark) && p.lost.CompareAndSwap(0, 1) {
			return
		}
		if _, werr := client.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// The broker removes the node and its answer is lost: the call that finds the node
// gone has removed it.
func TestDeleteNodeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.register(compute("r1", "a"))
	h.stop()
	proxy := loseAnswer(t, h.broker.URL(), "stream_msg_delete_response")
	timing := bus.DefaultTiming(1)
	timing.Request = 2 * time.Second
	conn, err := bus.Connect(bus.Options{URLs: []string{proxy.url()}, Name: "api", Role: "api", Timing: timing})
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	require.NoError(t, conn.Verify(t.Context()))
	h.start(func(o *Options) { o.Conn = conn })

	resp, err := h.rm.DeleteNode(t.Context(), &rackmanager.DeleteNodeRequest{RackId: "r1", NodeId: "a"})
	require.NoError(t, err)
	require.EqualValues(t, 1, proxy.lost.Load())
	requireSuccess(t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	_, _, err = h.conn.Node(t.Context(), node.Ref{RackID: "r1", NodeID: "a"})
	require.ErrorIs(t, err, bus.ErrNotFound)
	again, err := h.rm.DeleteNode(t.Context(), &rackmanager.DeleteNodeRequest{RackId: "r1", NodeId: "a"})
	require.NoError(t, err)
	requireFailure(t, again.GetResponse().GetStatus())
}
