// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"net"
	"syscall"
)

// Unreachable reports whether an error proves that nothing answers at an address: a
// connection was refused, ran into its limit, or no such host is there. A slow
// answer, a broken handshake, or a fault of this host's own network proves nothing.
func Unreachable(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return false
	}
	return op.Timeout() || errors.Is(op, syscall.ECONNREFUSED) || errors.Is(op, syscall.EHOSTUNREACH) || errors.Is(op, syscall.EHOSTDOWN)
}
