// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/process"
)

// TestC8RefusedProcessEnds: a process whose credentials the broker does not take ends with code 1, so that whoever
// started it starts it again.
func TestC8RefusedProcessEnds(t *testing.T) {
	url, seed := brokertest.StartRefusing(t)
	file := filepath.Join(t.TempDir(), "seed")
	require.NoError(t, os.WriteFile(file, seed, 0o600))
	path, _ := settings(t, fmt.Sprintf("bus.urls = [%q]\nbus.nkey_seed_file = %q\n", url, file))
	exit := make(chan int, 1)
	var out lockedBuilder
	go func() {
		exit <- process.Main(program(process.OnBus("jobs", func(ctx context.Context, _ *process.Env, _ *bus.Conn) error {
			<-ctx.Done()
			return ctx.Err()
		})), []string{"--config", path}, &out, &out)
	}()
	select {
	case code := <-exit:
		require.Equal(t, process.ExitFault, code, out.String())
		require.Contains(t, out.String(), "the broker refuses this process")
	case <-time.After(patience):
		t.Fatalf("the process goes on: %s", out.String())
	}
}
