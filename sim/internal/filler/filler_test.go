// SPDX-License-Identifier: Apache-2.0

package filler

import (
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestContent(t *testing.T) {
	const size = 3*blockSize + 77
	whole, err := io.ReadAll(New(size, 7))
	require.NoError(t, err)
	require.Len(t, whole, size)
	require.NoError(t, iotest.TestReader(New(size, 7), whole))
	require.NotEqual(t, whole[:blockSize], whole[blockSize:2*blockSize], "blocks differ")
	other, err := io.ReadAll(New(size, 8))
	require.NoError(t, err)
	require.NotEqual(t, whole, other)
	for _, at := range []int64{0, 3, 7, 8, blockSize - 2, blockSize + 5, size - 1} {
		part := make([]byte, min(20, size-at))
		_, err := New(size, 7).ReadAt(part, at)
		require.NoError(t, err)
		require.Equal(t, whole[at:at+int64(len(part))], part, at)
	}
}
