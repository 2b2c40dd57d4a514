// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/test/cmd/internal/program"
)

// rack is a running racksim.
type rack struct {
	*program.Program
	nodes []*rackmanager.NodeInfo
}

// startRack starts n compute trays and reads the nodes that racksim prints.
func startRack(ctx context.Context, bin, dir string, n int, args ...string) (*rack, error) {
	p, err := program.New(ctx, bin, dir, "racksim", append([]string{"--compute", fmt.Sprint(n), "--rack", "rack-bench"}, args...)...)
	if err != nil {
		return nil, err
	}
	nodes, err := p.StartRack()
	if err != nil {
		return nil, err
	}
	return &rack{Program: p, nodes: nodes.GetNodes()}, nil
}

func (r *rack) usage() (usage, error) { return usageOf(r.Process.Pid) }

// memorySettings let the Go runtime collect less often, up to a bound that holds
// for 10,000 running updates (docs/performance.md).
var memorySettings = []string{"GOGC=200", "GOMEMLIMIT=800MiB"} //nolint:gochecknoglobals // never written

// server is a running `rackbus serve`.
type server struct {
	*program.Program
	grpc string
	keys string
}

// startServer starts Rackbus with its defaults, but for what a fleet of this
// size makes necessary.
func startServer(ctx context.Context, bin, dir, firmware string, tracked int) (*server, error) {
	grpcAddr, err := program.FreeAddress()
	if err != nil {
		return nil, err
	}
	metricsAddr, err := program.FreeAddress()
	if err != nil {
		return nil, err
	}
	p, err := program.New(ctx, bin, dir, "rackbus", "serve",
		"--data", filepath.Join(dir, "data"), "--grpc", grpcAddr, "--metrics", metricsAddr, "--console", "127.0.0.1:0",
		"--set", "workflows.firmware_dir="+firmware, "--set", fmt.Sprintf("workflows.max_tracked_jobs=%d", tracked))
	if err != nil {
		return nil, err
	}
	p.Env = append(os.Environ(), memorySettings...)
	if err := p.StartServer(ctx, metricsAddr); err != nil {
		return nil, err
	}
	return &server{Program: p, grpc: grpcAddr, keys: filepath.Join(dir, "keys", "tls")}, nil
}

func (s *server) usage() (usage, error) { return usageOf(s.Process.Pid) }
