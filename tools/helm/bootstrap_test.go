// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBootstrapMakesTheSecrets: rackctl bootstrap, with the names that docs/kubernetes.md uses, writes every file that the pods
// expect in their Secrets, which kubectl makes of the files in these directories.
func TestBootstrapMakesTheSecrets(t *testing.T) {
	rackctl := filepath.Join(buildPrograms(t), "rackctl")
	site := filepath.Join(t.TempDir(), "site")
	run(t, rackctl, "bootstrap", "--out", site, "--profile", "cluster", "--api-host", "rackbus-api.racks.svc",
		"--nats-host", "rackbus-nats-0", "--nats-host", "rackbus-nats-1", "--nats-host", "rackbus-nats-2")

	r := install(t, "")
	for _, p := range programs() {
		made := map[string]bool{}
		for _, below := range []string{"", "tls", "keys", "keys/families"} {
			entries, err := os.ReadDir(filepath.Join(site, "install", p, below))
			if below == "keys" || below == "keys/families" || err == nil {
				require.NoError(t, err)
			}
			for _, e := range entries {
				require.False(t, e.Type().IsRegular() && made[e.Name()], "two files %s", e.Name())
				made[e.Name()] = e.Type().IsRegular()
			}
		}
		w := r.workloads["rackbus-"+p]
		files := w.files(t)
		require.NotEmpty(t, files)
		for path, key := range files {
			require.True(t, made[key], "%s: bootstrap has no %s for %s", p, key, path)
		}
	}
	for _, name := range []string{"nats.crt", "nats.key", "ca.crt"} {
		require.FileExists(t, filepath.Join(site, "install", "nats-2", "tls", name))
	}
	env, err := os.ReadFile(filepath.Join(site, "install", "nats-2", "nats.env"))
	require.NoError(t, err)
	for _, line := range []string{"RB_NATS_NAME=nats-2\n", "RB_NATS_LISTEN=0.0.0.0:4222\n", "RB_NATS_ROUTE_0=nats://rackbus-nats-0:6222\n"} {
		require.Contains(t, string(env), line)
	}
	container := install(t, "full").workloads["rb-nats-2"]
	for _, e := range container.container(t).Env {
		require.Contains(t, string(env), "\n"+e.Name+"=", "replaced, but not there")
	}
}

// TestShippedFilesAreUsed: the chart brings the configurations of deploy/nats, by links that a package resolves.
func TestShippedFilesAreUsed(t *testing.T) {
	for values, files := range map[string][]string{
		"":     {"single.conf", "server.conf", "accounts-single.conf"},
		"full": {"cluster.conf", "server.conf", "accounts.conf"},
	} {
		r := install(t, values)
		config := r.configs["rackbus-nats"]
		if values == "full" {
			config = r.configs["rb-nats"]
		}
		require.Len(t, config.Data, 3)
		all := sha256.New()
		for _, name := range files {
			want, err := os.ReadFile(filepath.Join("../../deploy/nats", name))
			require.NoError(t, err)
			require.Equal(t, string(want), config.Data[name]+trailing(string(want), config.Data[name]), name)
			all.Write(want)
		}
		for name, w := range r.workloads {
			if w.component == "nats" {
				require.Equal(t, hex.EncodeToString(all.Sum(nil)), w.template.Annotations["checksum/config"], "%s restarts with its files", name)
			}
		}
	}
}

// trailing is the newline at the end, which a block of YAML may keep or lose.
func trailing(want, got string) string {
	if len(want) == len(got)+1 {
		return "\n"
	}
	return ""
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOWORK=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
