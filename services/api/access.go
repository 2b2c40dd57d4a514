// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/certs"
)

// guard is the outermost interceptor of the API's own: it knows who calls, and
// leaves an audit record once the call has ended.
func (s *Server) guard(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	ctx = s.identify(ctx)
	resp, err := handler(ctx, req)
	s.audit.ended(ctx, ended{method: info.FullMethod, req: req, resp: resp, err: err, start: start})
	return resp, err
}

// guardStream does for streams what guard does for calls. Their messages are no
// part of the record: no stream changes anything, so only refusals leave one.
func (s *Server) guardStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	start := time.Now()
	ctx := s.identify(ss.Context())
	err := handler(srv, identified{ss, ctx})
	s.audit.ended(ctx, ended{method: info.FullMethod, err: err, start: start})
	return err
}

// identified is a stream whose context knows who calls.
type identified struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream has the context of its call
}

// Context returns the context of the call.
func (i identified) Context() context.Context { return i.ctx }

// identify puts who calls into the context. A call of this process, which the
// console makes for a browser, brings its principal along; none from outside can.
func (s *Server) identify(ctx context.Context) context.Context {
	ctx = withNotes(ctx)
	if _, ok := access.FromContext(ctx); ok {
		return ctx
	}
	state, address := (*tls.ConnectionState)(nil), ""
	if p, ok := peer.FromContext(ctx); ok {
		if p.Addr != nil {
			address = p.Addr.String()
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			state = &info.State
		}
	}
	if state == nil && s.opts.TLS != nil {
		state = &tls.ConnectionState{} // whatever this is, it has shown no certificate
	}
	return access.WithPrincipal(ctx, s.opts.Access.Of(state, address))
}

// callerOf names who calls.
func callerOf(ctx context.Context) string {
	if p, ok := access.FromContext(ctx); ok {
		return p.Identity
	}
	return certs.UnknownPeer
}

// authorize is the innermost interceptor: what comes before it also sees refusals.
func (s *Server) authorize(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := mayCall(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (s *Server) authorizeStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := mayCall(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, ss)
}

// mayCall refuses a caller whose role is too low. The reason names both, and where
// that can be changed.
func mayCall(ctx context.Context, method string) error {
	p, _ := access.FromContext(ctx)
	rule, known := access.RuleOf(method)
	switch {
	case !known:
		return errorf(CodePermissionDenied, "%s has no role that may call it", method)
	case !p.Role.Allows(rule.Least):
		return errorf(CodePermissionDenied, "caller %q has the role %s; %s needs the role %s (section [auth] of the API's configuration)",
			p.Identity, p.Role, method, rule.Least)
	case !forced(ctx):
		return nil
	case !access.MayForce(method):
		return errorf(CodeInvalidArgument, "%s: %s is for SetPowerState and BatchSetPowerState only", metaOnBusy, onBusyForce)
	case !p.Role.Allows(access.LeastForForce):
		return errorf(CodePermissionDenied, "caller %q has the role %s; %s: %s needs the role %s (section [auth] of the API's configuration)",
			p.Identity, p.Role, metaOnBusy, onBusyForce, access.LeastForForce)
	}
	return nil
}

// forced tells whether the caller wants to act beside the job that holds a node.
func forced(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return first(md, metaOnBusy) == onBusyForce
}
