// SPDX-License-Identifier: Apache-2.0

// Package porttest finds ports for servers of tests that have to be told theirs.
package porttest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ports are below those that systems give to whoever asks for any, so that no
// other test is given one of them before its server listens.
const (
	lowest = 20_000
	count  = 12_000
)

// Free finds n ports of 127.0.0.1 that nobody listens on.
func Free(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, 0, n)
	for range 100 * n {
		if len(ports) == n {
			break
		}
		port := lowest + rand.IntN(count) //nolint:gosec // a port is no secret
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // all at the end, so that no port is found twice
		ports = append(ports, port)
	}
	require.Len(t, ports, n, "free ports")
	return ports
}
