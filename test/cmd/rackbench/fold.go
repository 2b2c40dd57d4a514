// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/services/jobs"
)

// goalFold is in events per second and partition.
const goalFold = 20_000

// Limits and intervals of part d.
const (
	clusterLimit = 60 * time.Second
	foldLimit    = 2 * time.Minute
	foldPoll     = 2 * time.Millisecond
)

// foldRate is how fast one partition's events became records.
type foldRate struct {
	// Replicas is the number of brokers, and of copies of everything stored.
	Replicas int `json:"replicas"`
	Events   int `json:"events"`
	// PerSecond counts from the first commit to the last, PublishedPerSecond
	// until the last transition was published too.
	PerSecond          float64 `json:"events_per_second"`
	PublishedPerSecond float64 `json:"events_per_second_until_published"`
}

func (f *foldRate) met() bool { return f.PerSecond >= goalFold }

func runFolds(ctx context.Context, s *settings, dir string, r *report) error {
	fmt.Println()
	for _, replicas := range []int{1, 3} {
		f, err := measureFold(ctx, filepath.Join(dir, fmt.Sprintf("fold-%d", replicas)), replicas, s.foldEvents)
		if err != nil {
			return fmt.Errorf("%d brokers: %w", replicas, err)
		}
		r.Folds = append(r.Folds, f)
		r.printFold(os.Stdout, &f)
	}
	return nil
}

// measureFold fills the event stream before the jobs service starts, so that
// nothing but the fold is measured.
func measureFold(ctx context.Context, dir string, replicas, events int) (foldRate, error) {
	ctx, cancel := context.WithTimeout(ctx, foldLimit)
	defer cancel()
	urls, stop, err := startBrokers(ctx, dir, replicas)
	if err != nil {
		return foldRate{}, err
	}
	defer stop()
	conn, err := bus.Connect(bus.Options{URLs: urls, Name: "rackbench", Role: "rackbench", Replicas: replicas})
	if err != nil {
		return foldRate{}, err
	}
	defer conn.Close()
	if err := conn.Provision(ctx); err != nil {
		return foldRate{}, err
	}
	fill := &filler{conn: conn}
	if err := fill.run(ctx, events); err != nil {
		return foldRate{}, fmt.Errorf("fill: %w", err)
	}
	f := foldRate{Replicas: replicas, Events: fill.events}

	nc, err := nats.Connect(urls[0])
	if err != nil {
		return f, err
	}
	defer nc.Close()
	public, err := publicEvents(ctx, nc)
	if err != nil {
		return f, err
	}
	jobsConn, err := bus.Connect(bus.Options{URLs: urls, Name: "rackbench-jobs", Role: "jobs", Replicas: replicas})
	if err != nil {
		return f, err
	}
	defer jobsConn.Close()
	service, err := jobs.New(jobs.Options{Conn: jobsConn, Instance: "rackbench"})
	if err != nil {
		return f, err
	}
	running, quit := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- service.Run(running) }()
	err = f.watch(ctx, conn, public, fill)
	quit()
	return f, errors.Join(err, <-done)
}

// watch times the fold by its cursor.
func (f *foldRate) watch(ctx context.Context, conn *bus.Conn, public jetstream.Stream, fill *filler) error {
	var start time.Time
	var from uint64
	for {
		at, _, err := conn.Cursor(ctx, 0)
		if err != nil {
			return err
		}
		if start.IsZero() && at > 0 {
			start, from = time.Now(), at
		}
		if at >= fill.last {
			f.PerSecond = float64(at-from) / time.Since(start).Seconds()
			break
		}
		if err := rest(ctx, foldPoll); err != nil {
			return fmt.Errorf("the fold stands at event %d of %d: %w", at, fill.last, err)
		}
	}
	for {
		info, err := public.Info(ctx)
		if err != nil {
			return err
		}
		if info.State.Msgs >= fill.transitions {
			f.PublishedPerSecond = float64(fill.last-from) / time.Since(start).Seconds()
			return nil
		}
		if err := rest(ctx, foldPoll); err != nil {
			return err
		}
	}
}

// publicEvents is the stream of committed changes, as any subscriber sees it.
func publicEvents(ctx context.Context, nc *nats.Conn) (jetstream.Stream, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	return js.Stream(ctx, "RACKBUS_EVENTS")
}

// startBrokers starts one broker, or a cluster, with the settings of standalone.
func startBrokers(ctx context.Context, dir string, n int) (urls []string, stop func(), err error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, nil, err
	}
	var brokers []*broker.Broker
	stop = func() {
		for _, b := range brokers {
			b.Close()
		}
	}
	ports, err := freePorts(n)
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		o := broker.Options{
			Name: fmt.Sprintf("broker-%d", i), StoreDir: filepath.Join(dir, fmt.Sprint(i)), Host: "127.0.0.1", Port: -1,
			AtRestKey: secret.New(fmt.Sprintf("%x", key)),
		}
		if n > 1 {
			o.Cluster = &broker.Cluster{Name: "rackbench", Port: ports[i], Peers: ports}
		}
		b, err := broker.Start(o)
		if err != nil {
			stop()
			return nil, nil, err
		}
		brokers = append(brokers, b)
		urls = append(urls, b.URL())
	}
	if n > 1 {
		if err := awaitCluster(ctx, brokers); err != nil {
			stop()
			return nil, nil, err
		}
	}
	return urls, stop, nil
}

// electionPoll is the pause between two looks for the leader of the brokers.
const electionPoll = 100 * time.Millisecond

func awaitCluster(ctx context.Context, brokers []*broker.Broker) error {
	ctx, cancel := context.WithTimeout(ctx, clusterLimit)
	defer cancel()
	for {
		for _, b := range brokers {
			if b.ClusterReady(len(brokers)) {
				return nil
			}
		}
		if err := rest(ctx, electionPoll); err != nil {
			return fmt.Errorf("the brokers elected no leader: %w", err)
		}
	}
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // closed at once
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// newFamily is a job id of partition 0.
func newFamily() (job.ID, error) {
	for {
		id, err := job.NewFamily(rand.Reader)
		if err != nil || id.Partition(bus.Partitions) == 0 {
			return id, err
		}
	}
}
