// SPDX-License-Identifier: Apache-2.0

package standalone_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/porttest"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/services/standalone"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen.
const patience = 30 * time.Second

// instance is a running standalone process.
type instance struct {
	grpc, metrics string
	keys          string
	stop          func()
}

// start runs `rackbus serve` in this process on a data directory.
func start(t *testing.T, dir string) *instance {
	t.Helper()
	p := standalone.Program()
	i := &instance{grpc: free(t), metrics: free(t), keys: filepath.Join(dir, "keys", "tls")}
	set := []string{
		"standalone.data_dir=" + filepath.Join(dir, "data"), "workflows.firmware_dir=" + t.TempDir(),
		"agent.drain_timeout=5s", "api.drain_timeout=5s",
	}
	opts := config.Options{Process: p.Process, Optional: true, Set: append(set, addresses(i.grpc, i.metrics)...)}
	p.Options(&opts)
	cfg, err := config.Load(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	logs := io.Discard
	if os.Getenv("RACKBUS_TEST_LOG") != "" {
		logs = os.Stderr
	}
	go func() { done <- process.Run(ctx, p, cfg, logs) }()
	stopped := false
	i.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Fatal("rackbus serve does not stop")
		}
	}
	t.Cleanup(i.stop)
	i.awaitReady(t)
	return i
}

func addresses(grpcAddr, metricsAddr string) []string {
	gh, gp, _ := net.SplitHostPort(grpcAddr)
	mh, mp, _ := net.SplitHostPort(metricsAddr)
	return []string{"listen=" + gh, "port=" + gp, "metrics.listen=" + mh, "metrics.port=" + mp, "console.port=0"}
}

func free(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(porttest.Free(t, 1)[0]))
}

func (i *instance) awaitReady(t *testing.T) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Second}
	require.Eventually(t, func() bool {
		resp, err := client.Get("http://" + i.metrics + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, patience, 50*time.Millisecond)
}

// client dials with the certificate that the first start has made.
func (i *instance) client(t *testing.T) rackmanager.RackManagerClient {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(i.keys, "client.crt"), filepath.Join(i.keys, "client.key"))
	require.NoError(t, err)
	ca, err := os.ReadFile(filepath.Join(i.keys, "ca.crt"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	conn, err := grpc.NewClient(i.grpc, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13,
	})))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return rackmanager.NewRackManagerClient(conn)
}

func TestServeKeepsItsStateAcrossRestarts(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	tray := rackmanager.NodeType_COMPUTE_GB200_NVIDIA
	created, err := first.client(t).CreateNodes(t.Context(), &rackmanager.CreateNodesRequest{Nodes: &rackmanager.NodeSet{
		Nodes: []*rackmanager.NodeInfo{{
			NodeId: "n1", RackId: "r1", Type: &tray,
			BmcEndpoint: &rackmanager.Endpoint{
				Interface: &rackmanager.NetworkInterface{IpAddress: "127.0.0.1", MacAddress: "02:00:00:00:00:01"}, Port: 9,
				Credentials: &rackmanager.Credentials{Auth: &rackmanager.Credentials_UserPass{
					UserPass: &rackmanager.UsernamePassword{Username: "admin", Password: "pl4nted-secret"},
				}},
			},
		}},
	}})
	require.NoError(t, err)
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, created.GetResponse().GetStatus(), created.GetResponse().GetMessage())
	seeds, err := os.ReadFile(filepath.Join(dir, "keys", "families", "compute.seed"))
	require.NoError(t, err)
	first.stop()
	// As an earlier version left it.
	for _, file := range []string{"rack.seed", "rack.pub"} {
		require.NoError(t, os.Remove(filepath.Join(dir, "keys", "families", file)))
	}

	second := start(t, dir)
	require.FileExists(t, filepath.Join(dir, "keys", "families", "rack.seed"))
	nodes, err := second.client(t).ListNodeInventory(t.Context(), &rackmanager.ListNodeInventoryRequest{})
	require.NoError(t, err)
	require.Len(t, nodes.GetNodes(), 1)
	require.Equal(t, "n1", nodes.GetNodes()[0].GetNodeId())
	after, err := os.ReadFile(filepath.Join(dir, "keys", "families", "compute.seed"))
	require.NoError(t, err)
	require.Equal(t, seeds, after, "keys are made once")
	second.stop()
	requireAbsent(t, filepath.Join(dir, "data"), "pl4nted-secret")
}

func TestServeRefusesADirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir)
	second := []string{
		"serve", "--data", filepath.Join(dir, "data"), "--grpc", free(t), "--metrics", free(t), "--console", "127.0.0.1:0",
		"--set", "workflows.firmware_dir=" + t.TempDir(),
	}
	var out strings.Builder
	require.Equal(t, process.ExitFault, standalone.Main(second, &out, &out), out.String())
	require.Contains(t, out.String(), "is used by another rackbus serve (process "+strconv.Itoa(os.Getpid())+")")
	first.stop()
	start(t, dir).stop()
}

// requireAbsent searches every file below dir.
func requireAbsent(t *testing.T, dir, text string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.False(t, bytes.Contains(data, []byte(text)), "%s holds a secret in clear", path)
		return nil
	}))
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	for _, c := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{"no command", nil, process.ExitUsage, "Usage:"},
		{"keys of what", []string{"keys"}, process.ExitUsage, "rackbus keys init or rackbus keys seal"},
		{"unknown keys command", []string{"keys", "make"}, process.ExitUsage, `unknown command "make"`},
		{"unknown command", []string{"srve"}, process.ExitUsage, `unknown command "srve"`},
		{"help", []string{"--help"}, process.ExitOK, "rackbus serve"},
		{"version", []string{"version"}, process.ExitOK, "\n"},
		{"serve help", []string{"serve", "--help"}, process.ExitOK, "-data"},
		{"serve stray argument", []string{"serve", "now"}, process.ExitUsage, `"now"`},
		{"plaintext with one switch", []string{"serve", "--insecure", "--data", dir}, process.ExitUsage, "RACKBUS_ALLOW_INSECURE"},
		{"bad address", []string{"serve", "--data", dir, "--grpc", "8801"}, process.ExitUsage, "must be host:port"},
		{"bad port", []string{"serve", "--data", dir, "--metrics", "127.0.0.1:99999"}, process.ExitUsage, "99999"},
		{"unknown key", []string{"serve", "--data", dir, "--set", "workflow.firmware_dir=x"}, process.ExitUsage, "workflow.firmware_dir"},
		{"keys help", []string{"keys", "--help"}, process.ExitOK, "-out"},
		{"keys without directory", []string{"keys", "init"}, process.ExitUsage, "--out DIR"},
		{"keys", []string{"keys", "init", "--out", keys}, process.ExitOK, "Keys made"},
		{"keys again", []string{"keys", "init", "--out", keys}, process.ExitFault, "nothing was replaced"},
		{"keys of an earlier version", []string{"keys", "init", "--out", keys}, process.ExitOK, "families it lacked: [rack]"},
		{"keys brought up to date", []string{"keys", "init", "--out", keys}, process.ExitFault, "nothing was replaced"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "keys of an earlier version" {
				for _, file := range []string{"rack.seed", "rack.pub"} {
					require.NoError(t, os.Remove(filepath.Join(keys, "families", file)))
				}
			}
			var out strings.Builder
			require.Equal(t, c.exit, standalone.Main(c.args, &out, &out), out.String())
			require.Contains(t, out.String(), c.says)
		})
	}
	info, err := os.Stat(filepath.Join(keys, "families", "compute.seed"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}
