// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClipCountsColumns: a line that is wider than the terminal is two there, and the
// picture of the progress could not be replaced any more.
func TestClipCountsColumns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		width int
		want  string
	}{
		{"plain", 5, "plain"},
		{"plain", 4, "pla…"},
		{"電源故障", 8, "電源故障"},
		{"電源故障", 7, "電源故…"},
		{"電源故障", 6, "電源…"},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301"},
		{"x", 0, ""},
		{strings.Repeat("長", 1000), 2, "…"},
	} {
		got := clip(tt.text, tt.width)
		require.Equal(t, tt.want, got)
		require.LessOrEqual(t, columnsOf(got), max(tt.width, 0))
	}
}
