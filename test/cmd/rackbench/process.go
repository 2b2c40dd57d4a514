// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Waits for the programs.
const (
	readyPoll   = 100 * time.Millisecond
	readyLimit  = 30 * time.Second
	stopTimeout = 40 * time.Second
)

// process is a program that is measured.
type process struct {
	cmd *exec.Cmd
	log *os.File
}

func newProcess(ctx context.Context, bin, dir, name string, args ...string) (*process, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	// Ctrl-C reaches the bench, which stops its programs in order.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(bin, name), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = log
	return &process{cmd: cmd, log: log}, nil
}

// stop asks the program to end, and ends it if it does not.
func (p *process) stop() {
	defer p.log.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait()
}

func (p *process) usage() (usage, error) { return usageOf(p.cmd.Process.Pid) }

// rack is a running racksim.
type rack struct {
	*process
	nodes []*rackmanager.NodeInfo
}

// startRack starts n compute trays and reads the nodes that racksim prints.
func startRack(ctx context.Context, bin, dir string, n int, args ...string) (*rack, error) {
	p, err := newProcess(ctx, bin, dir, "racksim", append([]string{"--compute", fmt.Sprint(n), "--rack", "rack-bench"}, args...)...)
	if err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start racksim (make build makes it): %w", err)
	}
	nodes, err := readNodes(stdout)
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("racksim: %w (log %s)", err, p.log.Name())
	}
	return &rack{process: p, nodes: nodes}, nil
}

func readNodes(r io.Reader) ([]*rackmanager.NodeInfo, error) {
	var doc strings.Builder
	lines := bufio.NewScanner(r)
	for lines.Scan() && lines.Text() != "ready" {
		doc.WriteString(lines.Text() + "\n")
	}
	if lines.Text() != "ready" {
		return nil, errors.Join(errors.New("ended before it was ready"), lines.Err())
	}
	set := &rackmanager.NodeSet{}
	if err := protojson.Unmarshal([]byte(doc.String()), set); err != nil {
		return nil, fmt.Errorf("node set: %w", err)
	}
	return set.GetNodes(), nil
}

// memorySettings let the Go runtime collect less often, up to a bound that holds
// for 10,000 running updates (docs/performance.md).
var memorySettings = []string{"GOGC=200", "GOMEMLIMIT=800MiB"} //nolint:gochecknoglobals // never written

// server is a running `rackbus serve`.
type server struct {
	*process
	grpc string
	keys string
}

// startServer starts Rackbus with its defaults, but for what a fleet of this
// size makes necessary.
func startServer(ctx context.Context, bin, dir, firmware string, tracked int) (*server, error) {
	grpcAddr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	metricsAddr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p, err := newProcess(ctx, bin, dir, "rackbus", "serve",
		"--data", filepath.Join(dir, "data"), "--grpc", grpcAddr, "--metrics", metricsAddr, "--console", "127.0.0.1:0",
		"--set", "workflows.firmware_dir="+firmware, "--set", fmt.Sprintf("workflows.max_tracked_jobs=%d", tracked))
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = p.log
	p.cmd.Env = append(os.Environ(), memorySettings...)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start rackbus (make build makes it): %w", err)
	}
	s := &server{process: p, grpc: grpcAddr, keys: filepath.Join(dir, "keys", "tls")}
	if err := awaitReady(ctx, "http://"+metricsAddr+"/readyz"); err != nil {
		s.stop()
		return nil, fmt.Errorf("rackbus serve: %w (log %s)", err, p.log.Name())
	}
	return s, nil
}

func awaitReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s", readyLimit)
		case <-tick.C:
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
