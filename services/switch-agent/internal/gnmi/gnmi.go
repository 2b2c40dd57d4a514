// SPDX-License-Identifier: Apache-2.0

// Package gnmi asks the telemetry interface of a switch whether it serves us.
package gnmi

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/pkg/telemetry"
	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
)

// Timing holds the limits of a look. Zero fields take their defaults.
type Timing struct {
	// Connect bounds TCP, TLS and HTTP/2 together; default 30 s.
	Connect time.Duration
	// Call bounds the call; default 30 s.
	Call time.Duration
}

const defaultLimit = 30 * time.Second

// Options say where the interface is and who we are to it.
type Options struct {
	// Address is IP address and port.
	Address string
	// Material is required: the interface demands a client certificate.
	Material   *switchtls.Material
	ServerName string
	// Username and Password are those of the switch's operating system.
	Username string
	Password secret.Value
	Timing   Timing
	// Dial replaces the TCP dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Error is an interface that did not serve us.
type Error struct {
	// User is who we said to be, CommonName who our certificate says.
	User, CommonName string
	// Connected tells a refused call from a connection that never came up.
	Connected bool
	// Code is the gRPC status of the call.
	Code codes.Code
	Err  error
}

// Error gives one line. Where the refusal may be one of identity it names both,
// because many interfaces demand that they are the same.
func (e *Error) Error() string {
	if !e.identity() {
		return fmt.Sprintf("read gnmi capabilities: %v", e.Err)
	}
	text := fmt.Sprintf("read gnmi capabilities as user %q with the client certificate of %q: %v", e.User, e.CommonName, e.Err)
	if e.User != e.CommonName {
		text += "; where the switch maps certificates to users, the common name of the certificate has to be the user"
	}
	return text
}

func (e *Error) identity() bool {
	if e.Connected {
		return e.Code == codes.Unauthenticated || e.Code == codes.PermissionDenied
	}
	return errors.Is(e.Err, channel.ErrTLS)
}

// Unwrap gives the cause, a *channel.Error when there was no connection.
func (e *Error) Unwrap() error { return e.Err }

// Capabilities asks for the capabilities of the interface, whose content does not
// matter. Connection and call have a limit each. Every fault is an *Error.
func Capabilities(ctx context.Context, o Options) error {
	fault := &Error{User: o.Username}
	if o.Material == nil {
		fault.Err = errors.New("no client certificate")
		return fault
	}
	fault.CommonName = commonName(o.Material.Leaf())
	if o.Timing.Connect <= 0 {
		o.Timing.Connect = defaultLimit
	}
	if o.Timing.Call <= 0 {
		o.Timing.Call = defaultLimit
	}
	conn, err := channel.Open(ctx, channel.Options{
		Address: o.Address, Limit: o.Timing.Connect, Dial: o.Dial,
		Security: channel.Security{Material: o.Material, ServerName: o.ServerName},
	})
	if err != nil {
		fault.Err = err
		return fault
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, o.Timing.Call)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "username", o.Username, "password", o.Password.Reveal())
	if _, err = gnmi.NewGNMIClient(conn).Capabilities(ctx, &gnmi.CapabilityRequest{}); err == nil {
		return nil
	}
	s := status.Convert(err)
	fault.Connected, fault.Code = true, s.Code()
	fault.Err = fmt.Errorf("%s: %s", s.Code(), telemetry.RedactText(scrub(s.Message(), o.Password)))
	return fault
}

func commonName(leaf *x509.Certificate) string {
	if leaf == nil {
		return ""
	}
	return leaf.Subject.CommonName
}
