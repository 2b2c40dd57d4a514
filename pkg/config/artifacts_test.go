// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArtifacts(t *testing.T) {
	c := Default()
	c.Artifacts.Addresses = []string{"10.1.2.3/8", "fd00::/8", "192.168.1.1"}
	got, err := c.ArtifactAddresses()
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("192.168.1.1/32"),
	}, got)
	var faults Faults
	c.checkArtifacts(&faults)
	require.NoError(t, faults.err())

	c.Workflows.ArtifactStore = "disk"
	c.Artifacts.Schemes = []string{"ftp"}
	c.Artifacts.Hosts = []string{"*.example.net", "a.*.net", "https://x"}
	c.Artifacts.Addresses = []string{"10/8"}
	c.Artifacts.FileDirs = []string{" "}
	c.Artifacts.MaxFiles = 901
	c.checkArtifacts(&faults)
	err = faults.err()
	for _, path := range []string{
		"workflows.artifact_store", "artifacts.schemes[0]", "artifacts.hosts[1]", "artifacts.hosts[2]", "artifacts.addresses",
		"artifacts.file_dirs[0]", "artifacts.max_files",
	} {
		require.ErrorContains(t, err, path)
	}
	require.NotContains(t, err.Error(), "artifacts.hosts[0]")
}
