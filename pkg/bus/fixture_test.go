// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// The tests wait for leases and timers more than for a processor.
const sideBySide = "4"

func TestMain(m *testing.M) {
	if store := os.Getenv(storeOfProcess); store != "" {
		if err := serve(store); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// quick are leases short enough for tests, and long enough for a machine that is busy with others for seconds.
func quick() Timing {
	t := DefaultTiming(1)
	t.SessionTTL, t.SessionRenew, t.SessionMargin = 5*time.Second, 300*time.Millisecond, 2*time.Second
	t.FoldTTL, t.FoldRenew = 3*time.Second, 300*time.Millisecond
	t.Request = 5 * time.Second
	return t
}

func open(t *testing.T, url string, change ...func(*Options)) *Conn {
	t.Helper()
	o := Options{URLs: []string{url}, Name: t.Name(), Role: "test", Replicas: 1, Timing: quick()}
	for _, c := range change {
		c(&o)
	}
	c, err := Connect(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// provisioned is a broker and a connection to it, ready for use.
func provisioned(t *testing.T) (*Conn, *broker.Broker) {
	t.Helper()
	b := brokertest.Start(t)
	c := open(t, b.URL())
	require.NoError(t, c.Provision(t.Context()))
	return c, b
}

// rawJetStream changes things behind the package's back.
func rawJetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	require.NoError(t, err)
	return js
}

func newID(t *testing.T) job.ID {
	t.Helper()
	id, err := job.NewFamily(rand.Reader)
	require.NoError(t, err)
	return id
}

func leafRecord(id job.ID, nodeID string) job.Record {
	return job.NewLeaf(job.Spec{
		ID: id, Type: job.TypeFirmwareUpdate, RackID: "rack", NodeID: nodeID, Family: string(node.FamilyCompute),
		CreatedAt: time.Now(), Deadline: time.Now().Add(time.Hour),
	})
}

func event(id job.ID, kind job.EventKind, epoch, n uint64) *job.Event {
	return &job.Event{
		Kind: kind, ID: id, RackID: "rack", NodeID: "node", Type: job.TypeFirmwareUpdate, Family: "compute",
		Epoch: epoch, N: n, Description: fmt.Sprintf("%d.%d", epoch, n), At: time.Now().UTC(),
	}
}

// pollInterval is the pause between looks at the broker, which tells nobody when
// what a test waits for has come true.
const pollInterval = 5 * time.Millisecond

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(pollInterval) {
		require.True(t, time.Now().Before(deadline), "still waiting for: %s", what)
	}
}
