// SPDX-License-Identifier: Apache-2.0

package fold

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestManyParkedCommandsDoNotStopAFoldThatIsBehind ends a rollout with more children than
// may wait for the removal of their commands, while a command of another job waits to be
// erased until the fold has caught up.
func TestManyParkedCommandsDoNotStopAFoldThatIsBehind(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	conn, err := bus.Connect(bus.Options{URLs: []string{brokertest.Start(t).URL()}, Name: "jobs", Role: "jobs", Logger: log})
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.Provision(t.Context()))
	a := startAftermath(t.Context(), Options{Conn: conn, Log: log, Retry: time.Second})
	defer a.stop()
	a.lag.Store(eraseLag + 1)
	require.NoError(t, a.follow(t.Context(), &plan{}, bus.Commit{}, []bus.Revision{1 << 40}))
	require.Eventually(t, func() bool { return len(a.erase) == 0 }, time.Minute, time.Millisecond)

	p := &plan{}
	for i := range parkedBacklog + 10 {
		p.kept = append(p.kept, parkedCommand{node.Ref{RackID: "r", NodeID: fmt.Sprint("n", i)}, ids(1)[0]})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, a.follow(ctx, p, bus.Commit{}, nil))
}
