// SPDX-License-Identifier: Apache-2.0

// Package access decides who may do what: it finds the role of a caller by the
// names in its client certificate, and knows the least role of every RPC.
//
// It knows nothing of gRPC or HTTP. A listener makes a Principal of the TLS state
// of a connection, puts it into the context of the call, and asks RuleOf what the
// call needs.
package access
