// SPDX-License-Identifier: Apache-2.0

package api

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
)

func TestEachNode(t *testing.T) {
	t.Parallel()
	a, b := node.Ref{RackID: "r", NodeID: "a"}, node.Ref{RackID: "r", NodeID: "b"}
	var mu sync.Mutex
	var order []int
	eachNode([]node.Ref{a, b, a, a}, 4, func(i int) {
		mu.Lock()
		defer mu.Unlock()
		if i != 1 {
			order = append(order, i)
		}
	})
	require.Equal(t, []int{0, 2, 3}, order, "one node's requests keep their order")
	eachNode(nil, 4, func(int) { t.Fatal("nothing to do") })
	require.PanicsWithValue(t, "boom", func() {
		eachNode([]node.Ref{a, b}, 1, func(i int) {
			if i == 0 {
				panic("boom")
			}
		})
	})
}
