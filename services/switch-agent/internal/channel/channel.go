// SPDX-License-Identifier: Apache-2.0

// Package channel opens the gRPC connections to the services of a switch.
//
// A channel is one connection and never a second one: the services expect a
// greeting at the begin of each, so that a connection which was lost has to be
// opened again by whoever knows how.
package channel

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rackbus/rackbus/pkg/switchtls"
)

// maxMessage bounds an answer, as it does for NVUE.
const maxMessage = 8 << 20

// Security is how a connection is protected.
type Security struct {
	// Material verifies the switch and identifies us. Without it the connection is
	// plaintext, which insecure_switch asks for.
	Material *switchtls.Material
	// ServerName is the name the certificate has to be for; see
	// switchtls.Store.ServerName.
	ServerName string
}

// Options say where and how to connect.
type Options struct {
	// Address is IP address and port.
	Address  string
	Security Security
	// Limit bounds TCP, TLS and HTTP/2 together.
	Limit time.Duration
	// Dial replaces the TCP dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Open connects, in one attempt. Every fault is an *Error.
func Open(ctx context.Context, o Options) (*grpc.ClientConn, error) {
	l := &link{dialer: o.Dial, address: o.Address}
	if l.dialer == nil {
		l.dialer = (&net.Dialer{}).DialContext
	}
	transport := insecure.NewCredentials()
	if o.Security.Material != nil {
		config, err := o.Security.Material.ClientConfig(o.Security.ServerName)
		if err != nil {
			return nil, &Error{Address: o.Address, Kind: ErrTLS, Err: err}
		}
		transport = credentials.NewTLS(config)
	}
	conn, err := grpc.NewClient("passthrough:///"+o.Address,
		grpc.WithTransportCredentials(&observed{TransportCredentials: transport, link: l}),
		grpc.WithContextDialer(l.dial),
		// Ours is the limit that ends it, which knows whose time was over.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 2 * o.Limit}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithIdleTimeout(0))
	if err != nil {
		return nil, &Error{Address: o.Address, Kind: ErrProtocol, Err: err}
	}
	if err := await(ctx, conn, l, o.Limit); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// await waits until the connection is up or its one attempt has failed.
func await(ctx context.Context, conn *grpc.ClientConn, l *link, limit time.Duration) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn.Connect()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return l.failed(ErrProtocol, errors.New("no HTTP/2 connection came up"))
		case connectivity.Idle, connectivity.Connecting:
		}
		if conn.WaitForStateChange(bounded, state) {
			continue
		}
		if ctx.Err() != nil {
			return &Error{Address: l.address, Kind: ErrCanceled, Err: context.Cause(ctx)}
		}
		return &Error{Address: l.address, Kind: ErrTimeout, Err: fmt.Errorf("not connected within %s", limit)}
	}
}

// link is the one TCP connection of a channel, and what became of it.
type link struct {
	dialer  func(ctx context.Context, network, address string) (net.Conn, error)
	address string

	mu     sync.Mutex
	dialed bool
	first  *Error
}

func (l *link) dial(ctx context.Context, _ string) (net.Conn, error) {
	l.mu.Lock()
	again := l.dialed
	l.dialed = true
	l.mu.Unlock()
	if again {
		return nil, errors.New("the connection to the switch was lost")
	}
	conn, err := l.dialer(ctx, "tcp", l.address)
	if err != nil {
		l.note(ErrUnreachable, err)
	}
	return conn, err
}

// note keeps the first failure, which is the one that tells why.
func (l *link) note(kind error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = &Error{Address: l.address, Kind: classify(kind, err), Err: err}
	}
}

func (l *link) failed(kind error, err error) *Error {
	l.note(kind, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// observed notes why a handshake, or the first read behind it, failed: gRPC
// itself tells that only in a text.
type observed struct {
	credentials.TransportCredentials
	link *link
}

// ClientHandshake does the handshake of the wrapped credentials.
func (o *observed) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := o.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		o.link.note(ErrTLS, err)
		return nil, nil, err
	}
	return &watched{Conn: conn, link: o.link}, info, nil
}

// Clone returns credentials of the same link.
func (o *observed) Clone() credentials.TransportCredentials {
	return &observed{TransportCredentials: o.TransportCredentials.Clone(), link: o.link}
}

// alertWait is how long a refusal may take to be read that a failed write shows to
// have come: it lies in this host's buffers already.
const alertWait = 200 * time.Millisecond

// watched notes the first failed read. Under TLS 1.3 it is where the refusal of
// our certificate arrives.
type watched struct {
	net.Conn
	link *link
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	// A connection that we closed ourselves says nothing.
	if err != nil && !errors.Is(err, net.ErrClosed) {
		w.link.note(ErrProtocol, err)
	}
	return n, err
}

// Write reads, before it tells of a failure, why the peer has hung up: gRPC would
// close the connection without looking.
func (w *watched) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil && !errors.Is(err, net.ErrClosed) && w.Conn.SetReadDeadline(time.Now().Add(alertWait)) == nil {
		var rest [512]byte
		for {
			if _, rerr := w.Read(rest[:]); rerr != nil {
				break
			}
		}
	}
	return n, err
}

func classify(kind, err error) error {
	var timeout interface{ Timeout() bool }
	var op *net.OpError
	switch {
	case is[*tls.CertificateVerificationError](err), is[x509.UnknownAuthorityError](err),
		is[x509.HostnameError](err), is[x509.CertificateInvalidError](err):
		return ErrCertificate
	case errors.Is(err, context.Canceled):
		return ErrCanceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return ErrTimeout
	case is[tls.AlertError](err), errors.As(err, &op) && op.Op == "remote error":
		return ErrTLS
	default:
		return kind
	}
}

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}
