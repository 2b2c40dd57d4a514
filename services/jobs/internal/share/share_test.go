// SPDX-License-Identifier: Apache-2.0

package share

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFair(t *testing.T) {
	for _, tc := range []struct{ partitions, replicas, want int }{
		{8, 0, 8}, {8, 1, 8}, {8, 2, 4}, {8, 3, 3}, {8, 8, 1}, {8, 20, 1},
	} {
		require.Equal(t, tc.want, fair(tc.partitions, tc.replicas), "%+v", tc)
	}
}

func TestBalanceYieldsTheSurplus(t *testing.T) {
	s := New(8)
	var yielded []int
	for p := range 8 {
		require.True(t, s.Room())
		s.Take(p, func() { yielded = append(yielded, p) })
	}
	require.False(t, s.Room())
	s.Balance(3)
	require.Equal(t, []int{7, 6, 5, 4, 3}, yielded)
	for _, p := range yielded {
		s.Drop(p)
	}
	require.Equal(t, []int{0, 1, 2}, s.Held())
	require.False(t, s.Room())
	s.Balance(1)
	require.True(t, s.Room())
}
