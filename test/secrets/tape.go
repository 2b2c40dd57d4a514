// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// Tape keeps every answer that the API gives, headers and trailers included.
type Tape struct {
	mu      sync.Mutex
	content bytes.Buffer
}

// Unary is an interceptor of a client.
func (r *Tape) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	var header, trailer metadata.MD
	err := invoke(ctx, method, req, reply, cc, append(opts, grpc.Header(&header), grpc.Trailer(&trailer))...)
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.content, method, err, header, trailer)
	if m, ok := reply.(proto.Message); ok {
		// The message as text would escape what its fields hold.
		raw, merr := proto.Marshal(m)
		fmt.Fprintln(&r.content, string(raw), merr)
	}
	return err
}

// Bytes is everything so far.
func (r *Tape) Bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.content.Bytes())
}
