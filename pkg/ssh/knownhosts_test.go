// SPDX-License-Identifier: Apache-2.0

package ssh_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	cryptossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/pkg/ssh/sshtest"
)

func TestKnownHostsLines(t *testing.T) {
	t.Parallel()
	a, b := ed25519Key(t).PublicKey(), ed25519Key(t).PublicKey()
	text := func(k cryptossh.PublicKey) string {
		return strings.TrimSpace(string(cryptossh.MarshalAuthorizedKey(k)))
	}
	for _, tt := range []struct {
		name string
		file string
		at   []string
		want error
	}{
		{"plain", "10.0.0.1 " + text(a), []string{"10.0.0.1:22"}, nil},
		{"plain, other key", "10.0.0.1 " + text(b), []string{"10.0.0.1:22"}, ssh.ErrHostKeyChanged},
		{"other host", "10.0.0.2 " + text(b), []string{"10.0.0.1:22"}, ssh.ErrHostKeyUnknown},
		{"port", "[10.0.0.1]:2222 " + text(a), []string{"10.0.0.1:2222"}, nil},
		{"other port", "10.0.0.1 " + text(a), []string{"10.0.0.1:2222"}, ssh.ErrHostKeyUnknown},
		{"second address", "tray-7 " + text(a), []string{"10.0.0.1:22", "tray-7:22"}, nil},
		{"list", "tray-6,tray-7 " + text(a) + " comment", []string{"tray-7:22"}, nil},
		{"name in capitals", "Tray-7 " + text(a), []string{"tray-7:22"}, nil},
		{"ipv6", "fd00::7 " + text(a), []string{"[fd00::7]:22"}, nil},
		{"hashed", knownhosts.HashHostname("tray-7") + " " + text(a), []string{"tray-7:22"}, nil},
		{"hashed, other", knownhosts.HashHostname("tray-8") + " " + text(a), []string{"tray-7:22"}, ssh.ErrHostKeyUnknown},
		{"pattern", "tray-* " + text(a), []string{"tray-7:22"}, nil},
		{"pattern with port", "[10.0.0.*]:2222 " + text(a), []string{"10.0.0.9:2222"}, nil},
		{"negated", "tray-*,!tray-7 " + text(a), []string{"tray-7:22"}, ssh.ErrHostKeyUnknown},
		{"revoked", "@revoked * " + text(a) + "\ntray-7 " + text(a), []string{"tray-7:22"}, ssh.ErrHostKeyRevoked},
		{"authority", "@cert-authority * " + text(b) + "\ntray-7 " + text(a), []string{"tray-7:22"}, nil},
		{"comments and rubbish", "# mine\n\nrubbish\ntray-7 ssh-ed25519 !!!\ntray-7 " + text(a), []string{"tray-7:22"}, nil},
		{"one of two", "tray-7 " + text(b) + "\ntray-7 " + text(a), []string{"tray-7:22"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "known_hosts")
			require.NoError(t, os.WriteFile(path, []byte(tt.file+"\n"), 0o600))
			err := keys(t, ssh.PolicyStrict, path, nil).Check(tt.at, a)
			require.ErrorIs(t, err, tt.want)
			if !errors.Is(tt.want, ssh.ErrHostKeyUnknown) {
				return
			}
			require.NoError(t, keys(t, ssh.PolicyTrustOnFirstUse, path, nil).Check(tt.at, a))
		})
	}
}

func TestKnownHostsReplaceKeepsOtherHosts(t *testing.T) {
	t.Parallel()
	old, now := ed25519Key(t).PublicKey(), ed25519Key(t).PublicKey()
	text := func(k cryptossh.PublicKey) string {
		return strings.TrimSpace(string(cryptossh.MarshalAuthorizedKey(k)))
	}
	path := filepath.Join(t.TempDir(), "known_hosts")
	before := "# kept\ntray-6,tray-7 " + text(old) + " by hand\ntray-7 " + text(old) + "\n" +
		knownhosts.HashHostname("tray-7") + " " + text(old) + "\ntray-* " + text(old) + "\nrubbish\n"
	require.NoError(t, os.WriteFile(path, []byte(before), 0o600))
	k := keys(t, ssh.PolicyTrustOnFirstUse, path, nil)
	require.ErrorIs(t, k.Record([]string{"tray-7:22"}, now, false), ssh.ErrHostKeyChanged)
	require.Equal(t, before, string(readFile(t, path)))
	require.NoError(t, k.Record([]string{"tray-7:22", "10.0.0.7:22"}, now, true))
	require.Equal(t, "# kept\ntray-6 "+text(old)+" by hand\ntray-* "+text(old)+"\nrubbish\ntray-7,10.0.0.7 "+text(now)+"\n",
		string(readFile(t, path)))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
}

func TestTrustOnFirstUse(t *testing.T) {
	t.Parallel()
	s := sshtest.StartOpenSSH(t, sshtest.Options{HostKeys: []string{"rsa", "ed25519"}})
	path := filepath.Join(t.TempDir(), ".ssh", "known_hosts")
	policy := keys(t, ssh.PolicyTrustOnFirstUse, path, nil)
	require.NoError(t, dialOpenSSH(t, s, s.Port(), withKeys(policy)).Connect(t.Context()))
	require.Contains(t, string(readFile(t, path)), fmt.Sprintf("[127.0.0.1]:%d ", s.Port()))
	first := readFile(t, path)
	require.NoError(t, dialOpenSSH(t, s, s.Port(), withKeys(policy)).Connect(t.Context()))
	require.Equal(t, first, readFile(t, path))

	t.Run("strict refuses the unknown", func(t *testing.T) {
		strict := keys(t, ssh.PolicyStrict, filepath.Join(t.TempDir(), "none"), nil)
		err := dialOpenSSH(t, s, s.Port(), withKeys(strict)).Connect(t.Context())
		require.ErrorIs(t, err, ssh.ErrHostKeyUnknown)
		require.True(t, ssh.IsKind(err, ssh.KindHostKey))
	})
	t.Run("a failed login records nothing", func(t *testing.T) {
		d := startDevice(t)
		path := filepath.Join(t.TempDir(), "known_hosts")
		err := dial(t, d.port(), "wr0ng", withKeys(keys(t, ssh.PolicyTrustOnFirstUse, path, nil))).Connect(t.Context())
		require.ErrorIs(t, err, ssh.ErrCredentials)
		require.NoFileExists(t, path)
	})
}

// Many writers, each with a view of its own, as several processes have.
func TestKnownHostsWritersTakeTurns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "known_hosts")
	key, other := ed25519Key(t).PublicKey(), ed25519Key(t).PublicKey()
	var wg sync.WaitGroup
	var lost, refused atomic.Int32
	for w := range 4 {
		k := keys(t, ssh.PolicyTrustOnFirstUse, path, nil)
		mine := key
		if w%2 == 1 {
			mine = other
		}
		wg.Go(func() {
			for i := range 25 {
				if err := k.Record([]string{fmt.Sprintf("10.0.%d.%d:22", w, i)}, key, false); err != nil {
					lost.Add(1)
				}
			}
			if err := k.Record([]string{"shared:22"}, mine, false); err != nil {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(t, lost.Load())
	require.EqualValues(t, 2, refused.Load(), "the first key of the shared host counts")
	require.Equal(t, 101, strings.Count(string(readFile(t, path)), "\n"))
}

// A site with many hosts records each of them, and looks them up at every login.
func TestKnownHostsOfALargeSite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "known_hosts")
	key := strings.TrimSpace(string(cryptossh.MarshalAuthorizedKey(ed25519Key(t).PublicKey())))
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "10.%d.%d.1 %s\n", i/250, i%250, key)
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	k := keys(t, ssh.PolicyTrustOnFirstUse, path, nil)
	added := ed25519Key(t).PublicKey()
	require.NoError(t, k.Record([]string{"10.99.0.1:22"}, added, false))
	start := time.Now()
	for i := range 20 {
		require.NoError(t, k.Record([]string{fmt.Sprintf("10.99.1.%d:22", i)}, added, false))
	}
	t.Logf("%s for one new host", time.Since(start)/20)
	require.Less(t, time.Since(start), 10*time.Second)
	fresh := keys(t, ssh.PolicyStrict, path, nil)
	require.NoError(t, fresh.Check([]string{"10.99.1.19:22"}, added))
	require.ErrorIs(t, fresh.Check([]string{"10.39.249.1:22"}, added), ssh.ErrHostKeyChanged)
}
