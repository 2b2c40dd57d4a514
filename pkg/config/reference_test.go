// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/config"
)

var update = flag.Bool("update", false, "write the reference instead of comparing it")

func TestReference(t *testing.T) {
	want, err := config.Reference()
	require.NoError(t, err)
	path := filepath.Join("..", "..", "docs", "configuration.md")
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "run: go test ./config -run TestReference -update")
}
