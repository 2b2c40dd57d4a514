// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefusedBits(t *testing.T) {
	tests := []struct {
		name          string
		owner, reader int
		mode          fs.FileMode
		refused       bool
	}{
		{"own file", 10001, 10001, 0o600, false},
		{"own file, open to the group", 10001, 10001, 0o640, true},
		{"of root, for root, open to the group", 0, 0, 0o640, true},
		{"mounted by Kubernetes", 0, 10001, 0o440, false},
		{"of root, writable for the group", 0, 10001, 0o460, true},
		{"of root, open to all", 0, 10001, 0o444, true},
		{"of somebody else, open to the group", 5, 10001, 0o440, true},
		{"no owner known", -1, 10001, 0o440, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.refused, tt.mode&refusedBits(tt.owner, tt.reader) != 0)
		})
	}
}

func TestOwnerOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.Geteuid(), ownerOf(info))
}
