// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// stateStream holds what changes together: records, locks, capacity, commands.
const stateStream = "KV_rb"

// Snapshot is the stored state of all jobs, read past the code that keeps it.
type Snapshot struct {
	Records  map[job.ID]job.Record
	Locks    map[string]*rackbusv1.NodeLock
	Capacity int64
	// Commands, Parked, Gone and Outbox count commands, parked commands, families that are being removed, and commits
	// whose public events are still to be published.
	Commands, Parked, Gone, Outbox int
}

// Bus connects to the brokers with the rights of the jobs service. The caller closes the connection.
func (c *Cluster) Bus() (*nats.Conn, error) {
	if c.Site != nil {
		return c.As("jobs")
	}
	return c.dialBus(c.busURLs, "jobs", nats.TLSHandshakeFirst())
}

func (c *Cluster) dialBus(urls []string, certificate string, opts ...nats.Option) (*nats.Conn, error) {
	source, err := c.identity(certificate)
	if err != nil {
		return nil, err
	}
	cert, err := source.Certificate()
	if err != nil {
		return nil, err
	}
	roots, err := source.Roots()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}, RootCAs: roots}
	nc, err := nats.Connect(strings.Join(urls, ","), append([]nats.Option{
		nats.Secure(config), nats.Name("test"), nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to the bus: %w", err)
	}
	return nc, nil
}

// Stored is one message of a stream.
type Stored struct {
	Subject string
	Header  nats.Header
	Data    []byte
}

// readBatch is how many messages are asked for at a time.
const readBatch = 500

// ReadStream returns the messages of a stream: of each subject the last one, or all.
func ReadStream(ctx context.Context, nc *nats.Conn, stream string, policy jetstream.DeliverPolicy) (out []Stored, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read stream %s: %w", stream, err)
		}
	}()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(startLimit))
	if err != nil {
		return nil, err
	}
	config := jetstream.ConsumerConfig{
		DeliverPolicy: policy, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: time.Minute,
	}
	if policy == jetstream.DeliverLastPerSubjectPolicy {
		config.FilterSubject = ">"
	}
	consumer, err := js.CreateConsumer(ctx, stream, config)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, js.DeleteConsumer(context.WithoutCancel(ctx), stream, consumer.CachedInfo().Name))
	}()
	// Messages that were there at first may be erased meanwhile, so the end is where nothing comes any more.
	for ctx.Err() == nil {
		batch, err := consumer.FetchNoWait(readBatch)
		if err != nil {
			return nil, err
		}
		before := len(out)
		for m := range batch.Messages() {
			out = append(out, Stored{m.Subject(), m.Headers(), m.Data()})
		}
		if err := batch.Error(); err != nil {
			return nil, err
		}
		if len(out) == before {
			return out, nil
		}
	}
	return nil, context.Cause(ctx)
}

// Snapshot reads the state stream.
func (c *Cluster) Snapshot(ctx context.Context) (Snapshot, error) {
	s := Snapshot{Records: map[job.ID]job.Record{}, Locks: map[string]*rackbusv1.NodeLock{}}
	nc, err := c.Bus()
	if err != nil {
		return s, err
	}
	defer nc.Close()
	stored, err := ReadStream(ctx, nc, stateStream, jetstream.DeliverLastPerSubjectPolicy)
	if err != nil {
		return s, err
	}
	for _, m := range stored {
		if err := s.take(m); err != nil {
			return s, fmt.Errorf("read %s: %w", m.Subject, err)
		}
	}
	return s, nil
}

func (s *Snapshot) take(m Stored) error {
	if m.Header.Get("KV-Operation") != "" || m.Header.Get("Nats-Marker-Reason") != "" {
		return nil // deleted
	}
	switch subject := m.Subject; {
	case strings.HasPrefix(subject, "$KV.rb.job."):
		r, err := job.UnmarshalRecord(m.Data)
		if err != nil {
			return err
		}
		s.Records[r.ID] = r
	case strings.HasPrefix(subject, "$KV.rb.node."):
		l := &rackbusv1.NodeLock{}
		if err := proto.Unmarshal(m.Data, l); err != nil {
			return err
		}
		s.Locks[strings.TrimPrefix(subject, "$KV.rb.node.")] = l
	case subject == "$KV.rb.cap":
		n := &rackbusv1.JobCapacity{}
		if err := proto.Unmarshal(m.Data, n); err != nil {
			return err
		}
		s.Capacity = n.GetRecords()
	case strings.HasPrefix(subject, "rb.cmd."):
		s.Commands++
	case strings.HasPrefix(subject, "rb.park."):
		s.Parked++
	case strings.HasPrefix(subject, "rb.out."):
		s.Outbox++
	case strings.HasPrefix(subject, "$KV.rb.gone."):
		s.Gone++
	}
	return nil
}

// Open returns the jobs that are not terminal.
func (s Snapshot) Open() []job.Record {
	var out []job.Record
	for _, r := range s.Records {
		if !r.State.Terminal() {
			out = append(out, r)
		}
	}
	return out
}

// Violations lists what must never be, whatever has died: a node is locked if and only if a job of it is open, parents
// say what their children say, and the capacity counter counts the records.
func (s Snapshot) Violations() []string {
	var out []string
	bad := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	queued := map[string]bool{}
	for node, l := range s.Locks {
		if id := l.GetJobId(); id != "" {
			s.checkHolder(bad, node, id)
			queued[id] = true
		}
		for _, id := range l.GetQueue() {
			queued[id] = true
		}
	}
	children := map[job.ID]job.Counts{}
	for id, r := range s.Records {
		if r.Kind == job.KindLeaf && r.State.Terminal() == queued[id.String()] {
			bad("job %s on %s is %s, locked or parked: %t", id, r.NodeID, r.State, queued[id.String()])
		}
		if parent, ok := r.ParentID(); ok {
			if _, there := s.Records[parent]; !there && s.Gone == 0 {
				bad("job %s has lost its parent", id)
			}
			children[parent] = tally(children[parent], r.State)
		}
	}
	for id, r := range s.Records {
		if r.Kind == job.KindParent {
			s.checkParent(bad, id, r, children[id])
		}
	}
	if s.Capacity != int64(len(s.Records)) && s.Gone == 0 {
		bad("the capacity counter says %d, there are %d records", s.Capacity, len(s.Records))
	}
	slices.Sort(out)
	return out
}

func (s Snapshot) checkHolder(bad func(string, ...any), node, text string) {
	id, err := job.ParseID(text)
	if err != nil {
		bad("the lock of %s names %q", node, text)
		return
	}
	if r, ok := s.Records[id]; !ok || r.State.Terminal() {
		bad("the lock of %s is held by job %s, which is %s", node, id, r.State)
	}
}

func (s Snapshot) checkParent(bad func(string, ...any), id job.ID, r job.Record, children job.Counts) {
	counts := r.Counts
	counts.AlreadyUpToDate = 0
	if counts != children {
		bad("parent %s counts %+v, its children are %+v", id, counts, children)
	}
	if open := children.Queued + children.Running; r.Admitted && r.State.Terminal() != (open == 0) {
		bad("parent %s is %s with %d open children", id, r.State, open)
	}
	if known := children.Known(); r.Admitted && r.Total != known {
		bad("parent %s says %d children, there are %d", id, r.Total, known)
	}
	for i := uint32(1); i <= r.Total; i++ {
		if child := s.Records[id.Child(i)]; r.Children.Get(i) != child.State {
			bad("parent %s has child %d as %s, which is %s", id, i, r.Children.Get(i), child.State)
		}
	}
}

// tally adds a child to the counts of its parent.
func tally(c job.Counts, s job.State) job.Counts {
	switch s {
	case job.StateQueued:
		c.Queued++
	case job.StateRunning, job.StateCancellationRequested:
		c.Running++
	case job.StateCompleted:
		c.Completed++
	case job.StateFailed, job.StatePartiallyFailed:
		c.Failed++
	case job.StateCancelled:
		c.Cancelled++
	case job.StateTerminated:
		c.Terminated++
	case job.StateSuperseded:
		c.Superseded++
	case job.StateTimedOut:
		c.TimedOut++
	case job.StateUnspecified:
	}
	return c
}
