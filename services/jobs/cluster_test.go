// SPDX-License-Identifier: Apache-2.0

package jobs_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/job"
)

// startCluster runs three servers on this host.
func startCluster(t *testing.T) (brokers []*broker.Broker, urls []string) {
	t.Helper()
	const n = 3
	ports := make([]int, n)
	for i := range ports {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports[i] = l.Addr().(*net.TCPAddr).Port
		require.NoError(t, l.Close())
	}
	brokers = make([]*broker.Broker, n)
	started := make(chan error, n)
	for i := range brokers {
		dir := t.TempDir()
		go func() {
			var err error
			brokers[i], err = broker.Start(broker.Options{
				Name: fmt.Sprintf("n%d", i), StoreDir: dir, Host: "127.0.0.1", Port: -1,
				Cluster: &broker.Cluster{Name: "test", Port: ports[i], Peers: ports},
			})
			started <- err
		}()
	}
	for range brokers {
		require.NoError(t, <-started)
	}
	for _, b := range brokers {
		t.Cleanup(b.Close)
		urls = append(urls, b.URL())
	}
	return brokers, urls
}

// TestJobsSurviveTheLossOfOneOfThreeBrokers ends a broker while jobs run.
func TestJobsSurviveTheLossOfOneOfThreeBrokers(t *testing.T) {
	t.Parallel()
	brokers, urls := startCluster(t)
	r := newRigOn(t, urls...)
	r.patience = 2 * time.Minute // electing leaders takes seconds, consumers come after them
	r.start(hasty)
	const n = 60
	id := r.admission().batch("r", n, false)
	starts, ends := make([]job.Event, n), make([]job.Event, n)
	for i := range n {
		rec := r.record(id.Child(uint32(i + 1)))
		starts[i], ends[i] = said(&rec, job.EventStarted, 1, 1), said(&rec, job.EventFinished, 1, 2)
		ends[i].State, ends[i].StartedAt = job.StateCompleted, starts[i].At
	}
	r.publishAll(starts)
	brokers[0].Close()
	r.publishAll(ends)
	var parent job.Record
	r.await("the batch to be completed", func() bool {
		rec, _, err := r.conn.Record(t.Context(), id)
		if err == nil {
			parent = rec
		}
		return parent.State.Terminal()
	})
	require.Equal(t, job.StateCompleted, parent.State)
	r.await("all public changes", func() bool {
		events, err := r.raw.PublicEvents(t.Context())
		return err == nil && len(events) == 3*n+2
	})
	requireOrdered(t, r.publicEvents())
}
