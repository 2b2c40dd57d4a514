// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/porttest"
	"github.com/rackbus/rackbus/pkg/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

var errBroken = errors.New("the device room is on fire")

// program does nothing but run.
func program(run func(context.Context, *process.Env) error) process.Program {
	return process.Program{
		Name: "rackbus-test", Does: "tests the frame", Process: config.ProcessJobs, Run: run,
		Flags: func(set *flag.FlagSet) { set.Bool("extra", false, "a flag of the program") },
	}
}

// settings is a configuration file with free ports.
func settings(t *testing.T, more string) (path string, metrics string) {
	t.Helper()
	port := porttest.Free(t, 1)[0]
	path = filepath.Join(t.TempDir(), "config.toml")
	content := "listen = \"127.0.0.1\"\n" + more + "\n[metrics]\nport = " + strconv.Itoa(port) + "\n"
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path, "127.0.0.1:" + strconv.Itoa(port)
}

func TestExitCodes(t *testing.T) {
	good, _ := settings(t, "")
	bad, _ := settings(t, "prot = 1")
	taken, addr := settings(t, "")
	l, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	defer l.Close()
	ended := func(context.Context, *process.Env) error { return nil }
	for _, c := range []struct {
		name string
		run  func(context.Context, *process.Env) error
		args []string
		exit int
		says string
	}{
		{"help", ended, []string{"--help"}, process.ExitOK, "a flag of the program"},
		{"version", ended, []string{"--version"}, process.ExitOK, "\n"},
		{"unknown flag", ended, []string{"--nope"}, process.ExitUsage, "nope"},
		{"stray argument", ended, []string{"now"}, process.ExitUsage, `"now"`},
		{"missing file", ended, []string{"--config", "/does/not/exist"}, process.ExitUsage, "/does/not/exist"},
		{"unknown key", ended, []string{"--config", bad}, process.ExitUsage, "prot: unknown key, did you mean port?"},
		{"print", ended, []string{"--config", good, "--print-config"}, process.ExitOK, "max_tracked_jobs"},
		{"clean end", ended, []string{"--config", good}, process.ExitOK, "stopped"},
		{"failure", func(context.Context, *process.Env) error { return errBroken }, []string{"--config", good}, process.ExitFault, errBroken.Error()},
		{"metrics port taken", func(ctx context.Context, _ *process.Env) error {
			<-ctx.Done()
			return ctx.Err()
		}, []string{"--config", taken}, process.ExitFault, "listen for metrics"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			require.Equal(t, c.exit, process.Main(program(c.run), c.args, &out, &out), out.String())
			require.Contains(t, out.String(), c.says)
		})
	}
}

// A process reads ready only once its program has said so, and SIGTERM ends it
// with exit code 0.
func TestReadinessAndSignal(t *testing.T) {
	path, metrics := settings(t, "")
	started := make(chan *process.Env, 1)
	exit := make(chan int, 1)
	var out lockedBuilder
	go func() {
		exit <- process.Main(program(func(ctx context.Context, env *process.Env) error {
			started <- env
			<-ctx.Done()
			return ctx.Err()
		}), []string{"--config", path}, &out, &out)
	}()
	env := <-started
	require.Equal(t, http.StatusServiceUnavailable, status(t, metrics, "/readyz"))
	require.Equal(t, http.StatusOK, status(t, metrics, "/healthz"))
	env.Started()
	require.Equal(t, http.StatusOK, status(t, metrics, "/readyz"))
	require.Equal(t, http.StatusOK, status(t, metrics, "/metrics"))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	select {
	case code := <-exit:
		require.Equal(t, process.ExitOK, code, out.String())
	case <-time.After(patience):
		t.Fatal("SIGTERM does not end the process")
	}
}

func status(t *testing.T, addr, path string) (code int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	require.Eventually(t, func() bool {
		resp, err := client.Get("http://" + addr + path)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		code = resp.StatusCode
		return err == nil
	}, patience, 10*time.Millisecond)
	return code
}

// lockedBuilder is a log that several goroutines write.
type lockedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuilder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuilder) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
