// SPDX-License-Identifier: Apache-2.0

// Package sshtest has what tests of SSH clients need: a real OpenSSH server on
// loopback, and a network that misbehaves.
package sshtest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/porttest"
	"github.com/rackbus/rackbus/pkg/secret"
)

// skipVar lets a machine without OpenSSH leave its tests out, in so many words.
const skipVar = "RACKBUS_TEST_NO_SSHD"

// sshdPath has to be absolute: the server starts itself again for every
// connection.
const sshdPath = "/usr/sbin/sshd"

// patience bounds every wait of a test.
const patience = 20 * time.Second

// OpenSSH is a running OpenSSH server. It takes the user that runs the test, by a
// key that was made for it.
type OpenSSH struct {
	t testing.TB
	// Dir holds its keys and configuration.
	Dir  string
	User string
	// Key is the private key of the user, in PEM form.
	Key  secret.Value
	port int
	log  *lockedBuffer
	cmd  *exec.Cmd
	done chan struct{}
}

// Options vary the server.
type Options struct {
	// HostKeys are the types of its host keys; by default ed25519 alone.
	HostKeys []string
	// Config are further lines of its configuration.
	Config []string
}

// StartOpenSSH starts a server until the test ends. A machine without one fails
// the test, unless RACKBUS_TEST_NO_SSHD is set.
func StartOpenSSH(t testing.TB, o Options) *OpenSSH {
	t.Helper()
	if _, err := os.Stat(sshdPath); err != nil {
		if os.Getenv(skipVar) != "" {
			t.Skipf("%s is set and there is no OpenSSH server", skipVar)
		}
		t.Fatalf("this test needs an OpenSSH server: install Debian's openssh-server, or set %s=1 to leave it out: %v", skipVar, err)
	}
	me, err := user.Current()
	require.NoError(t, err)
	s := &OpenSSH{t: t, Dir: t.TempDir(), User: me.Username, log: &lockedBuffer{}}
	if me.Uid == "0" {
		// The server, started as root, insists on it.
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) //nolint:gosec // as the package makes it
	}
	if len(o.HostKeys) == 0 {
		o.HostKeys = []string{"ed25519"}
	}
	s.port = porttest.Free(t, 1)[0]
	lines := []string{
		"Port " + strconv.Itoa(s.port), "ListenAddress 127.0.0.1", "PidFile none", "UsePAM no", "StrictModes no",
		"PermitRootLogin prohibit-password", "PasswordAuthentication no", "LogLevel VERBOSE",
		"AuthorizedKeysFile " + filepath.Join(s.Dir, "authorized_keys"), "Subsystem sftp internal-sftp",
		"MaxStartups 100", "MaxSessions 50",
	}
	for _, kind := range o.HostKeys {
		lines = append(lines, "HostKey "+s.keygen("host_"+kind, kind))
	}
	key := s.keygen("user", "ed25519")
	pem, err := os.ReadFile(key)
	require.NoError(t, err)
	s.Key = secret.FromBytes(pem)
	public, err := os.ReadFile(key + ".pub")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "authorized_keys"), public, 0o600)) //nolint:gosec // of this test
	config := filepath.Join(s.Dir, "sshd_config")
	require.NoError(t, os.WriteFile(config, []byte(strings.Join(append(lines, o.Config...), "\n")+"\n"), 0o600))
	s.start(config)
	return s
}

func (s *OpenSSH) keygen(name, kind string) string {
	s.t.Helper()
	file := filepath.Join(s.Dir, name)
	out, err := exec.CommandContext(s.t.Context(), "ssh-keygen", "-q", "-t", kind, "-N", "", "-f", file).CombinedOutput() //nolint:gosec // of this test
	require.NoError(s.t, err, string(out))
	return file
}

func (s *OpenSSH) start(config string) {
	s.t.Helper()
	s.cmd = exec.Command(sshdPath, "-D", "-e", "-f", config) //nolint:gosec,noctx // ended by the cleanup
	s.cmd.Stderr = s.log
	require.NoError(s.t, s.cmd.Start())
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	deadline := time.Now().Add(patience)
	for !strings.Contains(s.Log(), "Server listening") {
		select {
		case <-s.done:
			s.t.Fatalf("sshd did not start: %s", s.Log())
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("sshd does not listen: %s", s.Log())
		}
	}
}

// Addr is where the server listens.
func (s *OpenSSH) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port is the server's TCP port.
func (s *OpenSSH) Port() uint16 { return uint16(s.port) }

// Log is what the server has logged.
func (s *OpenSSH) Log() string { return s.log.String() }

// HostKey is the public host key of a type, as it stands in known_hosts.
func (s *OpenSSH) HostKey(kind string) string {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Dir, "host_"+kind+".pub"))
	require.NoError(s.t, err)
	fields := strings.Fields(string(data))
	return fields[0] + " " + fields[1]
}

// KnownHosts writes a known_hosts file with keys of some types and returns its
// path.
func (s *OpenSSH) KnownHosts(kinds ...string) string {
	s.t.Helper()
	var text bytes.Buffer
	for _, kind := range kinds {
		fmt.Fprintf(&text, "[127.0.0.1]:%d %s\n", s.port, s.HostKey(kind))
	}
	file := filepath.Join(s.t.TempDir(), "known_hosts")
	require.NoError(s.t, os.WriteFile(file, text.Bytes(), 0o600))
	return file
}

// lockedBuffer is a buffer that one goroutine fills and others read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
