// SPDX-License-Identifier: Apache-2.0

// Package inproc calls gRPC services of the same process without a connection. What
// is called sees the values of the caller's context, so that a caller can say who it
// acts for; over a connection nobody can. Calls and server streams are there, streams
// from the client are not.
package inproc

import (
	"context"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Conn is both ends: services are registered with it, clients call over it. It is safe
// for concurrent use once all services are registered.
type Conn struct {
	unary    grpc.UnaryServerInterceptor
	stream   grpc.StreamServerInterceptor
	services map[string]service
	streams  sync.WaitGroup
}

type service struct {
	impl    any
	methods map[string]grpc.MethodDesc
	streams map[string]grpc.StreamDesc
}

var (
	_ grpc.ClientConnInterface = (*Conn)(nil)
	_ grpc.ServiceRegistrar    = (*Conn)(nil)
)

// New returns a connection whose calls pass the interceptors, the first one outermost.
func New(unary []grpc.UnaryServerInterceptor, stream []grpc.StreamServerInterceptor) *Conn {
	c := &Conn{services: map[string]service{}}
	for _, next := range reversed(unary) {
		c.unary = chainUnary(next, c.unary)
	}
	for _, next := range reversed(stream) {
		c.stream = chainStream(next, c.stream)
	}
	return c
}

func reversed[T any](list []T) []T {
	out := make([]T, 0, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		out = append(out, list[i])
	}
	return out
}

func chainUnary(outer, inner grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if inner == nil {
		return outer
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		return outer(ctx, req, info, func(ctx context.Context, req any) (any, error) { return inner(ctx, req, info, handler) })
	}
}

func chainStream(outer, inner grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if inner == nil {
		return outer
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		return outer(srv, ss, info, func(srv any, ss grpc.ServerStream) error { return inner(srv, ss, info, handler) })
	}
}

// RegisterService offers a service.
func (c *Conn) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s := service{impl: impl, methods: map[string]grpc.MethodDesc{}, streams: map[string]grpc.StreamDesc{}}
	for _, m := range desc.Methods {
		s.methods[m.MethodName] = m
	}
	for _, m := range desc.Streams {
		s.streams[m.StreamName] = m
	}
	c.services[desc.ServiceName] = s
}

// Wait returns when every stream has ended, which they do after their contexts.
func (c *Conn) Wait() { c.streams.Wait() }

// find splits "/package.Service/Method".
func (c *Conn) find(method string) (service, string, error) {
	name, rpc, ok := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	s, known := c.services[name]
	if !ok || !known {
		return service{}, "", status.Errorf(codes.Unimplemented, "unknown service of %s", method)
	}
	return s, rpc, nil
}

// Invoke makes a call. Requests and answers are copied, so that neither side sees what
// the other does with them afterwards.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	s, rpc, err := c.find(method)
	if err != nil {
		return err
	}
	m, ok := s.methods[rpc]
	if !ok {
		return status.Errorf(codes.Unimplemented, "unknown method %s", method)
	}
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	ctx = grpc.NewContextWithServerTransportStream(incoming(ctx), &headers{method})
	out, err := m.Handler(s.impl, ctx, func(in any) error { return transfer(in, args) }, c.unary)
	if err != nil {
		return asStatus(err)
	}
	return transfer(reply, out)
}

// incoming makes the metadata of the caller that of the call.
func incoming(ctx context.Context) context.Context {
	md, _ := metadata.FromOutgoingContext(ctx)
	return metadata.NewIncomingContext(ctx, md.Copy())
}

func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// transfer copies a message into another of its type.
func transfer(to, from any) error {
	dst, ok := to.(proto.Message)
	src, also := from.(proto.Message)
	if !ok || !also {
		return status.Errorf(codes.Internal, "%T and %T are no messages", to, from)
	}
	if dst.ProtoReflect().Descriptor() != src.ProtoReflect().Descriptor() {
		return status.Errorf(codes.Internal, "%T is no %T", from, to)
	}
	proto.Reset(dst)
	proto.Merge(dst, src)
	return nil
}

// headers takes what a call says beside its answer, which no caller here wants.
type headers struct{ method string }

func (h *headers) Method() string               { return h.method }
func (h *headers) SetHeader(metadata.MD) error  { return nil }
func (h *headers) SendHeader(metadata.MD) error { return nil }
func (h *headers) SetTrailer(metadata.MD) error { return nil }

// NewStream begins a server stream. It ends with ctx, at the latest.
func (c *Conn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	s, rpc, err := c.find(method)
	if err != nil {
		return nil, err
	}
	m, ok := s.streams[rpc]
	if !ok || desc.ClientStreams || m.ClientStreams {
		return nil, status.Errorf(codes.Unimplemented, "no stream of the server is %s", method)
	}
	p := &pipe{
		ctx: ctx, request: make(chan proto.Message, 1), answers: make(chan proto.Message), ended: make(chan struct{}),
	}
	c.streams.Go(func() {
		info := &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}
		ss := serverSide{p, grpc.NewContextWithServerTransportStream(incoming(ctx), &headers{method})}
		if c.stream != nil {
			p.err = c.stream(s.impl, ss, info, m.Handler)
		} else {
			p.err = m.Handler(s.impl, ss)
		}
		close(p.ended)
	})
	return clientSide{p}, nil
}

// pipe is one stream.
type pipe struct {
	ctx     context.Context //nolint:containedctx // a stream has the context of its call
	request chan proto.Message
	answers chan proto.Message
	ended   chan struct{} // closed once err stands
	err     error
}

func clone(m any) (proto.Message, error) {
	msg, ok := m.(proto.Message)
	if !ok {
		return nil, status.Errorf(codes.Internal, "%T is no message", m)
	}
	return proto.Clone(msg), nil
}

// serverSide is the stream as its handler has it.
type serverSide struct {
	*pipe
	ctx context.Context //nolint:containedctx // a stream has the context of its call
}

func (s serverSide) Context() context.Context     { return s.ctx }
func (s serverSide) SetHeader(metadata.MD) error  { return nil }
func (s serverSide) SendHeader(metadata.MD) error { return nil }
func (s serverSide) SetTrailer(metadata.MD)       {}

func (s serverSide) SendMsg(m any) error {
	msg, err := clone(m)
	if err != nil {
		return err
	}
	select {
	case s.answers <- msg:
		return nil
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

func (s serverSide) RecvMsg(m any) error {
	select {
	case msg := <-s.request:
		return transfer(m, msg)
	case <-s.ctx.Done():
		return status.FromContextError(s.ctx.Err()).Err()
	}
}

// clientSide is the stream as the caller has it.
type clientSide struct{ *pipe }

func (c clientSide) Context() context.Context     { return c.ctx }
func (c clientSide) Header() (metadata.MD, error) { return metadata.MD{}, nil }
func (c clientSide) Trailer() metadata.MD         { return metadata.MD{} }
func (c clientSide) CloseSend() error             { return nil }

func (c clientSide) SendMsg(m any) error {
	msg, err := clone(m)
	if err != nil {
		return err
	}
	select {
	case c.request <- msg:
		return nil
	default:
		return status.Error(codes.Internal, "a server stream takes one request")
	}
}

func (c clientSide) RecvMsg(m any) error {
	select {
	case msg := <-c.answers:
		return transfer(m, msg)
	case <-c.ended:
		if c.err == nil {
			return io.EOF
		}
		return asStatus(c.err)
	case <-c.ctx.Done():
		return status.FromContextError(c.ctx.Err()).Err()
	}
}
