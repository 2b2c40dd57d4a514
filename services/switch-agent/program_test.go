// SPDX-License-Identifier: Apache-2.0

package switchagent_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
)

// The program drives switches with what the configuration tells, and keeps secrets
// to itself.
func TestRunFromConfiguration(t *testing.T) {
	b := newBench(t)
	ports := b.sw.Ports()
	p := switchagent.Program()
	bus := agenttest.BusTiming()
	set := []string{
		"bus.urls=" + b.URL(), "keys.dir=" + b.KeyDir, "workflows.firmware_dir=" + b.FirmwareDir, "ssh.known_hosts=" + b.keys,
		"metrics.port=0", "timing.scale=0.01", "logging.log_level=debug", "switches.insecure_switch=true",
		"switches.allow_loopback_targets=true", fmt.Sprintf("switches.test_ports.ssh=%d", ports.SSH),
		"timing.bus.ack_wait=" + bus.AckWait.String(), "timing.bus.work_interval=" + bus.WorkInterval.String(),
	}
	_, err := config.Load(config.Options{Process: p.Process, Optional: true, Environ: []string{}, Set: set})
	require.ErrorContains(t, err, "switches.allow_loopback_targets = true: needs RACKBUS_ALLOW_INSECURE=1")
	require.ErrorContains(t, err, "switches.test_ports.ssh")
	cfg, err := config.Load(config.Options{Process: p.Process, Optional: true, Environ: []string{"RACKBUS_ALLOW_INSECURE=1"}, Set: set})
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	var logs bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- process.Run(ctx, p, cfg, &logs) }()
	j := b.Await(b.admitImage(b.imageFile("25.02.4440")))
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Equal(t, "ON", b.Ask(b.node, switchagent.OpPowerGet).GetPowerState())
	cancel()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(agenttest.Patience):
		t.Fatal("the program does not stop")
	}
	require.Contains(t, logs.String(), "job finished")
	require.NotContains(t, logs.String(), planted)
}
