// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

const (
	// envAllowInsecure is the second switch of plaintext, the same as that of servers.
	envAllowInsecure = "RACKBUS_ALLOW_INSECURE"
	// metaReason is the trailer that tells why, in answers that have no room for it.
	metaReason = "rackbus-reason"
	// maxAnswer bounds an answer, in bytes: the inventory of a large site.
	maxAnswer = 256 << 20
	// callLimit is how long a call may take, longCallLimit one that works on a device
	// while the caller waits; the longest is the configuration of a fabric, 25 min.
	callLimit     = 5 * time.Minute
	longCallLimit = 30 * time.Minute
)

// server is the other end.
type server struct {
	conn   *grpc.ClientConn
	target target
	limit  time.Duration
	// handshake is why no connection was made, as far as that is known.
	handshake *lastError

	racks    rackmanager.RackManagerClient
	v2       rackmanagerv2.RackManagerV2Client
	jobs     rackbusv1.JobsClient
	firmware rackbusv1.FirmwareClient
	access   rackbusv1.AccessClient
}

// dial prepares a connection; it is made with the first call.
func (p *program) dial() (*server, error) {
	t, err := p.target()
	if err != nil {
		return nil, err
	}
	creds, err := t.transport(p.env)
	if err != nil {
		return nil, err
	}
	s := &server{target: t, limit: callLimit}
	switch {
	case p.conn.timeout > 0:
		s.limit = p.conn.timeout
	case p.conn.timeout < 0:
		return nil, usagef("--timeout %s is less than none", p.conn.timeout)
	}
	remembered := rememberHandshakes(creds)
	s.handshake = remembered.last
	s.conn, err = grpc.NewClient(t.Address, grpc.WithTransportCredentials(remembered),
		grpc.WithUnaryInterceptor(s.unary), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, usagef("address %q: %w", t.Address, err)
	}
	s.racks, s.v2 = rackmanager.NewRackManagerClient(s.conn), rackmanagerv2.NewRackManagerV2Client(s.conn)
	s.jobs, s.firmware = rackbusv1.NewJobsClient(s.conn), rackbusv1.NewFirmwareClient(s.conn)
	s.access = rackbusv1.NewAccessClient(s.conn)
	return s, nil
}

// with runs do with a connection.
func (p *program) with(ctx context.Context, do func(context.Context, *server) error) error {
	s, err := p.dial()
	if err != nil {
		return err
	}
	defer s.close()
	return do(ctx, s)
}

// close ends the connection. Nothing is lost with it: every answer has been read.
func (s *server) close() { _ = s.conn.Close() }

// patient is for calls that work on a device while the caller waits.
func (p *program) patient(s *server) *server {
	if p.conn.timeout <= 0 {
		s.limit = longCallLimit
	}
	return s
}

// transport decides how the connection is protected.
func (t *target) transport(env *Env) (credentials.TransportCredentials, error) {
	if t.Insecure {
		if env.Getenv(envAllowInsecure) != "1" {
			return nil, usagef("plaintext needs %s=1 in the environment too: everybody on the way can read passwords", envAllowInsecure)
		}
		return insecure.NewCredentials(), nil
	}
	config, err := t.tls()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(config), nil
}

// tls is the client side of mutual TLS.
func (t *target) tls() (*tls.Config, error) {
	if t.CA == "" || t.Cert == "" || t.Key == "" {
		return nil, usagef("%s needs mutual TLS: give --tls-ca, --tls-cert and --tls-key, or put ca, cert and key into a context", t.Address)
	}
	if err := checkPrivate(t.Key, "the private key"); err != nil {
		return nil, err
	}
	source, err := certs.Load(certs.Files{Cert: t.Cert, Key: t.Key, CA: t.CA}, certs.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, usagef("certificates: %w", err)
	}
	if err := t.checkCertificate(source.NotAfter()); err != nil {
		return nil, err
	}
	name := t.ServerName
	if name == "" {
		if name, _, err = net.SplitHostPort(t.Address); err != nil {
			return nil, usagef("address %q: %w", t.Address, err)
		}
	}
	config, err := source.Client(name)
	if err != nil {
		return nil, usagef("certificates: %w", err)
	}
	return config, nil
}

// reasonKey finds where a call leaves the reason that its answer has no room for.
type reasonKey struct{}

// withReason returns a context whose calls leave their reasons in the string.
func withReason(ctx context.Context) (context.Context, *string) {
	reason := new(string)
	return context.WithValue(ctx, reasonKey{}, reason), reason
}

// unary bounds a call, keeps the reason of its trailer, and explains its errors.
func (s *server) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	var trailer metadata.MD
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Trailer(&trailer))...)
	if reason, ok := ctx.Value(reasonKey{}).(*string); ok {
		*reason = strings.Join(trailer.Get(metaReason), "; ")
	}
	return s.explain(method, err)
}

// explain tells people what is wrong with a call and what to do about it. The
// gRPC status stays in the chain.
func (s *server) explain(method string, err error) error {
	if err == nil {
		return nil
	}
	st, call := status.Convert(err), path.Base(method)
	text := cell(st.Message())
	switch st.Code() {
	case codes.Unavailable:
		if why := s.target.diagnose(s.handshake.get()); why != "" {
			err = &callError{st, fmt.Sprintf("%s%s cannot be reached: %s", s.target.Address, s.target.origin(), why)}
			break
		}
		err = &callError{st, fmt.Sprintf("%s cannot be reached or cannot work now: %s\n"+
			"  Check the address%s, that the server runs, and the certificates of both sides.", s.target.Address, plainReason(text), s.target.origin())}
	case codes.Unimplemented:
		err = &callError{st, fmt.Sprintf("the server at %s has no %s: %s\n"+
			"  It is older, or another server of the published API.", s.target.Address, call, text)}
	case codes.PermissionDenied, codes.Unauthenticated:
		err = &callError{st, fmt.Sprintf("%s was refused: %s\n"+
			"  rackctl whoami tells how the server sees you.", call, text)}
	case codes.DeadlineExceeded:
		err = &callError{st, fmt.Sprintf("%s did not end in time: %s\n"+
			"  It may have come about all the same: look before you try again. --timeout allows more.", call, text)}
	default:
		err = &callError{st, text}
	}
	return &exitError{exitOfCode(st.Code()), err}
}

// briefly is the reason of a failed call in one line.
func briefly(err error) string {
	var call *callError
	if errors.As(err, &call) {
		return plainReason(cell(call.status.Message()))
	}
	return plainReason(cell(status.Convert(err).Message()))
}

// callError is a failed call in words for people.
type callError struct {
	status *status.Status
	text   string
}

func (e *callError) Error() string              { return e.text }
func (e *callError) GRPCStatus() *status.Status { return e.status }

// unimplemented says that the server has no such call.
func unimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }
