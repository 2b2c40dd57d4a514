// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/porttest"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestExitCodes(t *testing.T) {
	t.Setenv("RACKBUS_ALLOW_INSECURE", "")
	for name, c := range map[string]struct {
		args []string
		code int
	}{
		"help":         {[]string{"--help"}, process.ExitOK},
		"version":      {[]string{"--version"}, process.ExitOK},
		"unknown flag": {[]string{"--bogus"}, process.ExitUsage},
		"no file":      {[]string{"--config", filepath.Join(t.TempDir(), "none.toml")}, process.ExitUsage},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, c.code, process.Main(Program(), c.args, &out, &errs), name)
		require.NotEmpty(t, out.String()+errs.String(), name)
	}
}

// The program serves with what the configuration tells, and stops with its context.
func TestRunFromConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := brokertest.Start(t)
	jobs, err := bus.Connect(bus.Options{URLs: []string{b.URL()}, Name: "jobs", Role: "jobs"})
	require.NoError(t, err)
	defer jobs.Close()
	require.NoError(t, seal.WriteKeys(filepath.Join(dir, "keys"), node.KeyFamilies()))
	port := porttest.Free(t, 1)[0]
	cfg, err := config.Load(config.Options{
		Process: config.ProcessAPI, Optional: true, Environ: []string{"RACKBUS_ALLOW_INSECURE=1"},
		Set: []string{
			"tls.insecure=true", "listen=127.0.0.1", fmt.Sprintf("port=%d", port), "metrics.port=0", "console.port=0", "auth.default_role=admin", "bus.urls=" + b.URL(),
			"keys.dir=" + filepath.Join(dir, "keys"), "workflows.firmware_dir=" + filepath.Join(dir, "firmware"),
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	log := &lockedBuffer{}
	go func() { done <- process.Run(ctx, Program(), cfg, log) }()

	cc, err := grpc.NewClient(fmt.Sprintf("127.0.0.1:%d", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer cc.Close()
	rm := rackmanager.NewRackManagerClient(cc)
	_, err = rm.GetVersion(t.Context(), &rackmanager.GetVersionRequest{}, grpc.WaitForReady(true))
	require.NoError(t, err, "it answers before the bus is provisioned")
	require.NoError(t, jobs.Provision(t.Context()))
	require.Eventually(t, func() bool {
		resp, err := rm.CreateNodes(t.Context(), &rackmanager.CreateNodesRequest{Nodes: set(compute("r1", "a"))})
		return err == nil && resp.GetResponse().GetStatus() == statusOf(true)
	}, time.Minute, 50*time.Millisecond)
	who, err := rackbusv1.NewAccessClient(cc).WhoAmI(t.Context(), &rackbusv1.WhoAmIRequest{})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.Role_ROLE_ADMIN, who.GetRole())
	cancel()
	require.NoError(t, <-done)
	require.Contains(t, log.String(), "serving without TLS")
}
