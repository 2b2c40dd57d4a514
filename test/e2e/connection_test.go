// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

// cutter cuts the TCP connection of a client.
type cutter struct {
	mu   sync.Mutex
	conn net.Conn
	// onSent cuts once a request was handed to the connection.
	onSent bool
}

func (c *cutter) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Close()
}

func (c *cutter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (c *cutter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (c *cutter) HandleConn(context.Context, stats.ConnStats) {}

func (c *cutter) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, sent := s.(*stats.OutPayload); sent && c.onSent {
		c.cut()
	}
}

// TestD4JobOutlivesTheConnection: a job that was accepted completes although its
// caller has gone in that moment; and one whose caller has gone before the answer
// is found by the key of the request, or was never begun.
func TestD4JobOutlivesTheConnection(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Racks: []sim.Options{{
		RackID: "d4", Compute: 2, Timing: bmc.Timing{Task: 300 * time.Millisecond, BMCOutage: 200 * time.Millisecond},
	}}})
	s, rack := &scene{Cluster: c, Client: c.Client(0)}, c.Racks[0]
	ctx := forRack(t)
	_, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: s.NodeSet(rack)})
	require.NoError(t, err)
	s.WriteTrayPackage("d4.fwpkg", "4.0.1")
	req := func(node string) *rackmanager.UpdateFirmwareRequest {
		return &rackmanager.UpdateFirmwareRequest{RackId: rack.ID(), NodeId: node, Filename: "d4.fwpkg", Activate: true}
	}

	answered := &cutter{}
	out, err := c.Client(0, grpc.WithContextDialer(answered.dial)).UpdateFirmware(ctx, req("compute-0001"))
	answered.cut()
	require.NoError(t, err)
	s.completed(ctx, t, out.GetJobId())

	keyed := metadata.AppendToOutgoingContext(ctx, "rackbus-idempotency-key", "d4")
	gone := &cutter{onSent: true}
	_, err = c.Client(0, grpc.WithContextDialer(gone.dial), grpc.WithStatsHandler(gone), grpc.WithDisableRetry()).
		UpdateFirmware(keyed, req("compute-0002"))
	require.Error(t, err, "the connection was cut behind the request")
	require.Eventually(t, func() bool {
		out, err = s.UpdateFirmware(keyed, req("compute-0002"))
		return err == nil && out.GetStatus() == success
	}, patience, 50*time.Millisecond, "%v %v", out, err)
	s.completed(ctx, t, out.GetJobId())
	for _, node := range []string{"compute-0001", "compute-0002"} {
		require.Equal(t, "4.0.1", rack.Device(node).Version(cluster.TrayComponent))
		require.Len(t, rack.Uploads(node), 1)
	}
}
