// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

// registerChunk is how many nodes one CreateNodes call registers.
const registerChunk = 500

// maxAnswer is the largest answer the client takes.
const maxAnswer = 16 << 20

// client is the caller of Rackbus: one gRPC connection over mutual TLS.
type client struct {
	conn  *grpc.ClientConn
	racks rackmanager.RackManagerClient
	nodes []*rackmanager.NodeInfo
}

func dial(s *server, nodes []*rackmanager.NodeInfo) (*client, error) {
	cert, err := tls.LoadX509KeyPair(filepath.Join(s.keys, "client.crt"), filepath.Join(s.keys, "client.key"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(filepath.Join(s.keys, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("no certificate in ca.crt")
	}
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: "localhost",
	})), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	return &client{conn: conn, racks: rackmanager.NewRackManagerClient(conn), nodes: nodes}, nil
}

func (c *client) close() { _ = c.conn.Close() }

// register registers all nodes and returns how long that took.
func (c *client) register(ctx context.Context) (time.Duration, error) {
	start := time.Now()
	for from := 0; from < len(c.nodes); from += registerChunk {
		chunk := c.nodes[from:min(from+registerChunk, len(c.nodes))]
		resp, err := c.racks.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: &rackmanager.NodeSet{Nodes: chunk}})
		if err != nil {
			return 0, fmt.Errorf("CreateNodes: %w", err)
		}
		if resp.GetResponse().GetStatus() != rackmanager.ReturnCode_RETURN_CODE_SUCCESS {
			return 0, fmt.Errorf("CreateNodes: %s", resp.GetResponse().GetMessage())
		}
	}
	return time.Since(start), nil
}

func (c *client) power(ctx context.Context, node int) error {
	n := c.nodes[node]
	resp, err := c.racks.GetPowerState(ctx, &rackmanager.GetPowerStateRequest{NodeId: n.GetNodeId(), RackId: n.GetRackId()})
	if err != nil {
		return err
	}
	if resp.GetPstate() != "ON" {
		return fmt.Errorf("GetPowerState of %s: %s, state %q", n.GetNodeId(), resp.GetStatus(), resp.GetPstate())
	}
	return nil
}

func (c *client) inventory(ctx context.Context, node int) error {
	n := c.nodes[node]
	resp, err := c.racks.GetNodeFirmwareInventory(ctx,
		&rackmanager.GetNodeFirmwareInventoryRequest{NodeId: n.GetNodeId(), RackId: n.GetRackId()})
	if err != nil {
		return err
	}
	if len(resp.GetFirmwareList()) == 0 {
		return fmt.Errorf("GetNodeFirmwareInventory of %s: %s, no firmware", n.GetNodeId(), resp.GetStatus())
	}
	return nil
}
