// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bootstrap"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
)

// options of a cluster in dir, whose files stay where they are made.
func options(dir string) bootstrap.Options {
	return bootstrap.Options{
		Dir: dir, Profile: bootstrap.Cluster, APIHosts: []string{"rackbus.example.net", "192.0.2.7"},
		NATSHosts:  []string{"nats-0.example.net", "nats-1.example.net:4333", "nats-2.example.net"},
		InstallDir: filepath.Join(dir, "install"), Files: os.DirFS("../../deploy"),
	}
}

func leaf(dir string) bootstrap.Options {
	o := options(dir)
	o.Profile, o.Site, o.APIHosts = bootstrap.Leaf, "row-b", nil
	o.HubHosts, o.NATSHosts = o.NATSHosts, []string{"nats.row-b.example.net"}
	o.HubHosts[1] = "nats-1.example.net"
	o.InstallDir = filepath.Join(o.InstallDir, "row-b")
	return o
}

// snapshot is every file with its mode and its digest.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		digest := sha256.Sum256(raw)
		out[path] = info.Mode().String() + string(digest[:])
		return nil
	}))
	return out
}

func run(t *testing.T, o bootstrap.Options) *bootstrap.Report {
	t.Helper()
	report, err := bootstrap.Run(o)
	require.NoError(t, err)
	return report
}

// TestEveryProcessHasWhatItNeeds: the configurations load, and nobody has the keys of others.
func TestEveryProcessHasWhatItNeeds(t *testing.T) {
	dir := t.TempDir()
	run(t, options(dir))
	run(t, leaf(dir))
	for name, p := range map[string]struct {
		kind   config.Process
		family node.Family
	}{
		"api": {config.ProcessAPI, ""}, "jobs": {config.ProcessJobs, node.FamilyRack},
		"compute-agent":          {config.ProcessComputeAgent, node.FamilyCompute},
		"switch-agent":           {config.ProcessSwitchAgent, node.FamilySwitch},
		"powershelf-agent":       {config.ProcessPowerShelfAgent, node.FamilyPowerShelf},
		"row-b/compute-agent":    {config.ProcessComputeAgent, node.FamilyCompute},
		"row-b/switch-agent":     {config.ProcessSwitchAgent, node.FamilySwitch},
		"row-b/powershelf-agent": {config.ProcessPowerShelfAgent, node.FamilyPowerShelf},
	} {
		in := filepath.Join(dir, "install", name)
		c, err := config.Load(config.Options{Process: p.kind, Path: filepath.Join(in, "config.toml")})
		require.NoError(t, err, name)
		require.Equal(t, 3, c.Bus.Replicas, name)
		require.FileExists(t, c.Bus.NKeySeedFile)
		_, err = tls.LoadX509KeyPair(c.Bus.TLSCert, c.Bus.TLSKey)
		require.NoError(t, err, name)
		for _, f := range node.KeyFamilies() {
			_, err := seal.LoadSeeds(c.Keys.Dir, f)
			require.Equal(t, f == p.family, err == nil, "%s has the seed of %s: %v", name, f, err)
		}
		for _, never := range []string{"ca.key", "at-rest.key"} {
			for path := range snapshot(t, in) {
				require.NotEqual(t, never, filepath.Base(path), name)
			}
		}
	}
	publics, err := seal.LoadPublic(filepath.Join(dir, "install", "api", "keys"))
	require.NoError(t, err)
	require.Len(t, publics, len(node.KeyFamilies()))

	c, err := config.Load(config.Options{Process: config.ProcessAPI, Path: filepath.Join(dir, "install/api/config.toml")})
	require.NoError(t, err)
	require.Equal(t, []string{"tls://nats-0.example.net:4222", "tls://nats-1.example.net:4333", "tls://nats-2.example.net:4222"}, c.Bus.URLs)
	require.Equal(t, "none", c.Auth.DefaultRole)
	pair, err := tls.LoadX509KeyPair(c.TLS.Cert, c.TLS.Key)
	require.NoError(t, err)
	for _, host := range []string{"rackbus.example.net", "192.0.2.7"} {
		require.NoError(t, pair.Leaf.VerifyHostname(host))
	}
	admin, err := tls.LoadX509KeyPair(filepath.Join(dir, "install/people/admin/tls/client.crt"), filepath.Join(dir, "install/people/admin/tls/client.key"))
	require.NoError(t, err)
	require.Equal(t, c.Auth.Admins[0], admin.Leaf.URIs[0].String())
	require.NotContains(t, admin.Leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
}

// TestSecretsArePrivate: what is secret can be read by its owner only.
func TestSecretsArePrivate(t *testing.T) {
	dir := t.TempDir()
	run(t, options(dir))
	run(t, leaf(dir))
	secrets := 0
	for path := range snapshot(t, dir) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		public := false
		for _, suffix := range []string{".crt", ".pub", ".toml", ".conf", ".yaml"} {
			public = public || strings.HasSuffix(path, suffix)
		}
		if !public {
			secrets++
			require.Zero(t, info.Mode().Perm()&0o077, path)
		}
	}
	require.Greater(t, secrets, 50)
}

// TestAgainChangesNothing: the second run makes nothing, and says what it would write otherwise.
func TestAgainChangesNothing(t *testing.T) {
	dir := t.TempDir()
	first := run(t, options(dir))
	require.NotEmpty(t, first.Made)
	require.Empty(t, first.Different)
	edited := filepath.Join(dir, "install", "jobs", "config.toml")
	require.NoError(t, os.WriteFile(edited, []byte("# mine\n"), 0o600))
	before := snapshot(t, dir)

	again := run(t, options(dir))
	require.Empty(t, again.Made)
	require.Empty(t, again.Extended)
	require.Equal(t, []string{edited}, again.Different)
	require.Equal(t, before, snapshot(t, dir))
	require.Equal(t, first.Copies, again.Copies)
}

// TestMissingIsAdded: a user that an earlier version did not have, and a lost copy.
func TestMissingIsAdded(t *testing.T) {
	dir := t.TempDir()
	run(t, options(dir))
	env := filepath.Join(dir, "install", "nats-1", "nats.env")
	raw, err := os.ReadFile(env)
	require.NoError(t, err)
	whole := string(raw)
	var without []string
	for line := range strings.Lines(whole) {
		if !strings.HasPrefix(line, "NKEY_AGENT_SWITCH=") {
			without = append(without, line)
		}
	}
	require.NoError(t, os.WriteFile(env, []byte(strings.Join(without, "")), 0o600))
	copied := filepath.Join(dir, "install", "switch-agent", "nkey.seed")
	seed, err := os.ReadFile(copied)
	require.NoError(t, err)
	require.NoError(t, os.Remove(copied))

	report := run(t, options(dir))
	require.Equal(t, []string{env}, report.Extended)
	require.Equal(t, []string{copied}, report.Made)
	now, err := os.ReadFile(copied)
	require.NoError(t, err)
	require.Equal(t, seed, now)
	now, err = os.ReadFile(env)
	require.NoError(t, err)
	require.ElementsMatch(t, strings.Split(whole, "\n"), strings.Split(string(now), "\n"))
	info, err := os.Stat(env)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
}

// TestPublicKeysBelongToSeeds: nats-server is told the keys that the processes have.
func TestPublicKeysBelongToSeeds(t *testing.T) {
	dir := t.TempDir()
	run(t, options(dir))
	for _, server := range []string{"nats-0", "nats-1", "nats-2"} {
		env, err := os.ReadFile(filepath.Join(dir, "install", server, "nats.env"))
		require.NoError(t, err)
		for variable, process := range map[string]string{
			"NKEY_API": "api", "NKEY_JOBS": "jobs", "NKEY_AGENT_COMPUTE": "compute-agent",
			"NKEY_AGENT_SWITCH": "switch-agent", "NKEY_AGENT_POWERSHELF": "powershelf-agent",
		} {
			raw, err := os.ReadFile(filepath.Join(dir, "install", process, "nkey.seed"))
			require.NoError(t, err)
			pair, err := nkeys.ParseDecoratedUserNKey(raw)
			require.NoError(t, err)
			public, err := pair.PublicKey()
			require.NoError(t, err)
			require.Contains(t, string(env), "\n"+variable+"="+public+"\n")
		}
	}
}

// TestStaleCertificates: a certificate for other hosts is named, and made anew once it is gone.
func TestStaleCertificates(t *testing.T) {
	dir := t.TempDir()
	run(t, options(dir))
	moved := options(dir)
	moved.APIHosts = append(moved.APIHosts, "new.example.net")
	server := filepath.Join(dir, "secrets", "tls", "server")
	require.Equal(t, []string{server + ".crt"}, run(t, moved).Stale)
	for _, suffix := range []string{".crt", ".key"} {
		require.NoError(t, os.Remove(server+suffix))
		require.NoError(t, os.Remove(filepath.Join(dir, "install", "api", "tls", "server"+suffix)))
	}
	report := run(t, moved)
	require.Empty(t, report.Stale)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "install", "api", "tls", "server.crt"), filepath.Join(dir, "install", "api", "tls", "server.key"))
	require.NoError(t, err)
	require.NoError(t, pair.Leaf.VerifyHostname("new.example.net"))

	// An ending one too.
	ca, err := certs.EnsureCA(filepath.Join(dir, "secrets", "tls"))
	require.NoError(t, err)
	cert, key, err := ca.Issue(certs.Leaf{Role: "jobs", NotAfter: time.Now().Add(24 * time.Hour)})
	require.NoError(t, err)
	require.NoError(t, certs.WritePair(filepath.Join(dir, "secrets", "tls"), "jobs", cert, key))
	require.Equal(t, []string{filepath.Join(dir, "secrets", "tls", "jobs.crt")}, run(t, moved).Stale)
}

// asSite makes the options those of a leaf site.
func asSite(o *bootstrap.Options, name string) {
	o.Profile, o.NATSHosts, o.HubHosts, o.Site = bootstrap.Leaf, []string{"nats.b.example.net"}, []string{"nats-0.example.net"}, name
}

func TestOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*bootstrap.Options){
		"profile":           func(o *bootstrap.Options) { o.Profile = "double" },
		"directory":         func(o *bootstrap.Options) { o.Dir = "" },
		"servers":           func(o *bootstrap.Options) { o.NATSHosts = o.NATSHosts[:2] },
		"port":              func(o *bootstrap.Options) { o.NATSHosts[0] = "nats-0:99999" },
		"IPv6":              func(o *bootstrap.Options) { o.NATSHosts[0] = "2001:db8::1" },
		"host":              func(o *bootstrap.Options) { o.APIHosts[0] = "a b" },
		"no API":            func(o *bootstrap.Options) { o.APIHosts = nil },
		"path":              func(o *bootstrap.Options) { o.InstallDir = "/etc/rack bus" },
		"relative path":     func(o *bootstrap.Options) { o.StateDir = "state" },
		"site":              func(o *bootstrap.Options) { o.Profile, o.NATSHosts, o.HubHosts = "leaf", o.NATSHosts[:1], o.NATSHosts },
		"hub":               func(o *bootstrap.Options) { o.Profile, o.NATSHosts, o.Site = "leaf", o.NATSHosts[:1], "b" },
		"site of a process": func(o *bootstrap.Options) { asSite(o, "api") },
		"site of people":    func(o *bootstrap.Options) { asSite(o, "people") },
		"site of outsiders": func(o *bootstrap.Options) { asSite(o, "ext") },
		"no hub there":      func(o *bootstrap.Options) { asSite(o, "row-b") },
		"site of a server":  func(o *bootstrap.Options) { asSite(o, "nats-1") },
		"line in a host":    func(o *bootstrap.Options) { o.NATSHosts[0] = "nats\nRB_NATS_LISTEN=0.0.0.0:1" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(dir)
			change(&o)
			_, err := bootstrap.Run(o)
			require.ErrorIs(t, err, bootstrap.ErrOptions)
			require.Empty(t, snapshot(t, dir), "nothing is written")
		})
	}
}

// TestHalfAnAuthority: a new authority would make all certificates worthless.
func TestHalfAnAuthority(t *testing.T) {
	dir := t.TempDir()
	run(t, options(dir))
	require.NoError(t, os.Remove(filepath.Join(dir, "secrets", "tls", "ca.key")))
	before := snapshot(t, dir)
	_, err := bootstrap.Run(options(dir))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, before, snapshot(t, dir))
}
