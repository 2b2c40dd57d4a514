// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

// Client speaks to one API replica.
type Client struct {
	rackmanager.RackManagerClient
	V2   rackmanagerv2.RackManagerV2Client
	Jobs rackbusv1.JobsClient
	// Conn is the connection below.
	Conn *grpc.ClientConn
}

// maxAnswer is what the published clients accept, in bytes.
const maxAnswer = 4 << 20

// Client returns a client of the i-th API replica, counted from 0, with the certificate of a caller. Its connection
// comes back by itself when the replica was away.
func (c *Cluster) Client(i int, opts ...grpc.DialOption) *Client {
	c.t.Helper()
	return c.ClientAs("client", i, opts...)
}

// ClientAs is Client with the certificate of a role.
func (c *Cluster) ClientAs(role string, i int, opts ...grpc.DialOption) *Client {
	c.t.Helper()
	source, err := c.identity(role)
	require.NoError(c.t, err)
	config, err := source.Client("127.0.0.1")
	require.NoError(c.t, err)
	conn, err := c.dial(i, config, opts)
	require.NoError(c.t, err)
	return c.keep(conn)
}

// identity is the certificate of a role.
func (c *Cluster) identity(role string) (*certs.Source, error) {
	if c.Site != nil {
		if role == "client" {
			role = "operator"
		}
		return certs.Load(certs.Files{
			Cert: c.Site.Certificate(role + ".crt"), Key: c.Site.Certificate(role + ".key"), CA: c.Site.Certificate("ca.crt"),
		}, certs.Options{})
	}
	return certs.Load(certs.Files{
		Cert: c.certFile(role + ".crt"), Key: c.certFile(role + ".key"), CA: c.certFile("ca.crt"),
	}, certs.Options{})
}

func (c *Cluster) dial(i int, config *tls.Config, opts []grpc.DialOption) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient(c.apis[i], append([]grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 500 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		}),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("dial API: %w", err)
	}
	return conn, nil
}

func (c *Cluster) keep(conn *grpc.ClientConn) *Client {
	client := &Client{
		RackManagerClient: rackmanager.NewRackManagerClient(conn),
		V2:                rackmanagerv2.NewRackManagerV2Client(conn),
		Jobs:              rackbusv1.NewJobsClient(conn),
		Conn:              conn,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, client)
	return client
}

func (c *Client) close() { _ = c.Conn.Close() }
