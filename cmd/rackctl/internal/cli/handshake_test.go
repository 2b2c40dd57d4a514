// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// own writes a certificate of somebody and returns the flags that use it.
func (l *lab) own(name string, ca *certs.CA, leaf certs.Leaf) []string {
	l.t.Helper()
	cert, key, err := ca.Issue(leaf)
	require.NoError(l.t, err)
	return []string{"--tls-cert", l.write(name+".crt", cert), "--tls-key", l.write(name+".key", key)}
}

// TestHandshakes: what is wrong with certificates is told by the file that is wrong.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("GetVersion", &rackmanager.GetVersionResponse{Version: "v9"})
	other, err := certs.NewCA()
	require.NoError(t, err)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 mail.example.net ESMTP\r\n"))
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, plain.Close())
		<-served
	})
	for name, tt := range map[string]struct {
		flags []string
		exit  int
		says  string
	}{
		"authority": {[]string{"--tls-ca", l.write("other.crt", other.PEM())}, cli.ExitUnreachable, "does not come from the authority in " + l.path("other.crt")},
		"name":      {[]string{"--tls-server-name", "another.name"}, cli.ExitUnreachable, "--tls-server-name"},
		"no TLS":    {[]string{"--address", plain.Addr().String()}, cli.ExitUnreachable, "nobody speaks TLS there"},
		"stranger":  {l.own("stranger", other, certs.Leaf{Role: "alice"}), cli.ExitUnreachable, "does not accept the certificate in " + l.path("stranger.crt")},
		"ended": {
			l.own("ended", authority(), certs.Leaf{Role: "alice", NotAfter: time.Now().Add(-time.Hour)}), cli.ExitUsage,
			"the certificate in " + l.path("ended.crt") + " has ended",
		},
	} {
		got := l.run(append([]string{"version"}, tt.flags...)...)
		require.Equal(t, tt.exit, got.code, "%s: %s", name, got.stderr)
		require.Contains(t, got.stderr, tt.says, name)
		require.NotContains(t, got.stderr, "desc =", name)
	}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"https://rms.lab:8801", "a b", "rms.lab:99999", "rms.lab:x", ":8801", "rms.lab/api", "1:2:3:4"} {
		for _, args := range [][]string{{"racks"}, {"context", "set", "lab", "--config", t.TempDir() + "/c.yaml"}} {
			got := run(t, append(args, "--address", address)...)
			require.Equal(t, cli.ExitUsage, got.code, "%s: %s", address, got.stderr)
			require.Contains(t, got.stderr, "HOST:PORT", address)
		}
	}
	for address, whole := range map[string]string{
		"rms.lab": "rms.lab:8801", "10.0.0.1:1": "10.0.0.1:1", "fd00::7": "[fd00::7]:8801", "[fd00::7]": "[fd00::7]:8801", "[fd00::7]:9": "[fd00::7]:9",
	} {
		got := run(t, "context", "show", "--address", address)
		require.Equal(t, cli.ExitOK, got.code, got.stderr)
		require.Contains(t, got.stdout, whole+"\n")
	}
}
