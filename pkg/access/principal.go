// SPDX-License-Identifier: Apache-2.0

package access

import "context"

// Principal is who makes a call.
type Principal struct {
	// Identity is the SPIFFE id of the client certificate, else its subject;
	// certs.UnknownPeer without one.
	Identity string
	Role     Role
	// Peer is the address of the other end.
	Peer string
}

type principalKey struct{}

// WithPrincipal returns a context whose calls are made by p.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// FromContext returns who makes the call. Without a principal it is the zero one,
// which has no role.
func FromContext(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}
