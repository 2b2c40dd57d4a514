// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"crypto/sha256"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestEveryRoleWorksWithTheShippedRights(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	api, jobs := s.connect(userAPI), s.connect(userJobs)
	agents := map[node.Family]*Conn{
		node.FamilyCompute: s.connect(userCompute), node.FamilyPowerShelf: s.connect(userPowerShelf),
		node.FamilySwitch: s.connect(userSwitch), node.FamilyRack: s.connect(userJobs),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	require.NoError(t, jobs.Provision(ctx))
	require.NoError(t, api.Verify(ctx))
	for _, a := range agents {
		require.NoError(t, a.Verify(ctx))
	}
	s.inventory(ctx, api)
	s.locks(ctx, api)
	for family, a := range agents {
		s.work(ctx, family, api, jobs, a)
	}
	s.timers(ctx, jobs)
	s.catalog(ctx, api, jobs, agents[node.FamilyCompute])
	s.evidence(ctx, api, jobs, agents[node.FamilyCompute])
	s.audit(ctx, api)
	s.subscribe(ctx)
	s.requireNoRefusal()
}

// receive takes the next value, or fails when ctx ends before.
func receive[T any](ctx context.Context, t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-ctx.Done():
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func (s *site) inventory(ctx context.Context, api *Conn) {
	t := s.t
	at := node.Ref{RackID: "r", NodeID: "n"}
	target := &rackbusv1.NodeTarget{RackId: at.RackID, NodeId: at.NodeID}
	require.NoError(t, api.AddNodes(ctx, &rackbusv1.RackRecord{V: 1, RackId: "r"}, Absent, &rackbusv1.NodeRecord{V: 1, Target: target}))
	nodes, err := api.Nodes(ctx, "r")
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	racks, err := api.Racks(ctx)
	require.NoError(t, err)
	require.Len(t, racks, 1)
	_, rev, err := api.Node(ctx, at)
	require.NoError(t, err)
	require.NoError(t, api.RemoveNode(ctx, rev))
}

// catalog keeps an artifact as the API and the jobs service do, and follows and
// reads it as an agent does.
func (s *site) catalog(ctx context.Context, api, jobs, agent *Conn) {
	t := s.t
	key, err := CatalogArtifact("object", 1)
	require.NoError(t, err)
	record := &rackbusv1.ArtifactRecord{V: 1, Cache: "object"}
	made, err := api.CommitCatalog(ctx, CatalogWrite{Key: key, Value: record})
	require.NoError(t, err)
	digest := Digest(sha256.Sum256([]byte("image")))
	require.NoError(t, jobs.PutBlob(ctx, digest, strings.NewReader("image")))
	_, err = jobs.CommitCatalog(ctx, CatalogWrite{Key: key, Value: record, Expect: made.Last})
	require.NoError(t, err)
	require.ErrorIs(t, jobs.WatchCatalog(ctx, CatalogArtifacts, func(CatalogEntry) error { return io.EOF }, func() {}), io.EOF)

	_, err = agent.CatalogEntry(ctx, key, record)
	require.NoError(t, err)
	require.NoError(t, agent.CatalogEntries(ctx, CatalogArtifacts, func(CatalogEntry) error { return nil }))
	require.ErrorIs(t, agent.WatchCatalog(ctx, CatalogArtifacts, func(CatalogEntry) error { return io.EOF }, func() {}), io.EOF)
	require.NoError(t, agent.ReadBlob(ctx, digest, io.Discard))

	for _, writer := range []*Conn{api, jobs} {
		kept, err := writer.KeepBlob(ctx, digest)
		require.NoError(t, err)
		require.True(t, kept)
		blobs, err := writer.Blobs(ctx)
		require.NoError(t, err)
		require.Len(t, blobs, 1)
		require.NoError(t, writer.DropBlob(ctx, blobs[0]))
		require.ErrorIs(t, writer.DropBlob(ctx, blobs[0]), ErrConflict)
		_, err = writer.SweepBlobs(ctx, 0)
		require.NoError(t, err)
		require.NoError(t, writer.PutBlob(ctx, digest, strings.NewReader("image")))
	}
}

func (s *site) audit(ctx context.Context, api *Conn) {
	t := s.t
	require.NoError(t, api.PutAudit(ctx, "x", &rackbusv1.AuditRecord{V: 1, Rpc: "/rackbus.v1.Jobs/CancelJob"}))
	for _, r := range []AuditRange{{}, {Stored: time.Now().Add(time.Hour)}} {
		count := 0
		require.NoError(t, api.AuditRecords(ctx, r, func(*rackbusv1.AuditRecord) bool { count++; return true }))
		require.Equal(t, 1, count)
	}
}

func (s *site) locks(ctx context.Context, api *Conn) {
	t := s.t
	at := node.Ref{RackID: "r", NodeID: "sync"}
	held, err := api.HoldSync(ctx, at, &rackbusv1.NodeLock{V: 1, Operation: "power"}, Absent, time.Minute)
	require.NoError(t, err)
	require.NoError(t, api.ReleaseSync(ctx, at, held))
	guard, err := api.TakeRackPower(ctx, "r", &rackbusv1.RackPower{V: 1}, time.Minute)
	require.NoError(t, err)
	require.NoError(t, api.ReleaseRackPower(ctx, guard))
	_, err = api.Locks(ctx, []node.Ref{at})
	require.NoError(t, err)
}

// work takes a job of a family from its admission to its end.
func (s *site) work(ctx context.Context, family node.Family, api, jobs, agent *Conn) {
	t := s.t
	r := s.admit(ctx, api, family)
	at := node.Ref{RackID: r.RackID, NodeID: r.NodeID}
	require.NoError(t, api.PublishEvent(ctx, &job.Event{Kind: job.EventQueued, ID: r.ID, RackID: at.RackID, NodeID: at.NodeID, At: time.Now()}))

	session, err := agent.OpenSession(ctx, family, "instance")
	require.NoError(t, err)
	alive, err := jobs.FamilyAlive(ctx, family)
	require.NoError(t, err)
	require.True(t, alive)
	woken := make(chan job.ID, 1)
	require.NoError(t, agent.OnCancel(ctx, family, func(id job.ID) { woken <- id }))
	if family != node.FamilyRack {
		s.query(ctx, family, agent, api, jobs)
	} else { // coordinators ask, and are not asked
		svc, err := agent.Serve(family, "1.0.0", 1, nil)
		require.NoError(t, err)
		require.NoError(t, svc.Close())
	}

	commands, err := agent.Commands(ctx, family)
	require.NoError(t, err)
	var d *Delivery
	for d == nil {
		require.NoError(t, commands.Fetch(ctx, 1, func(got *Delivery) { d = got }))
	}
	require.Equal(t, r.ID, d.ID)
	require.NoError(t, d.Working())
	_, _, err = agent.Record(ctx, r.ID)
	require.NoError(t, err)
	_, err = agent.Gone(ctx, r.ID)
	require.NoError(t, err)
	_, _, err = agent.Checkpoint(ctx, family, r.ID)
	require.ErrorIs(t, err, ErrNotFound)
	cp := &rackbusv1.JobCheckpoint{V: 1, JobId: r.ID.String(), Family: string(family), Owner: session.ID(), Epoch: 1, At: timestamppb.Now()}
	rev, err := agent.PutCheckpoint(ctx, cp, Absent)
	require.NoError(t, err)
	alive, err = agent.SessionAlive(ctx, family, session.ID())
	require.NoError(t, err)
	require.True(t, alive)

	_, err = jobs.PutCheckpoint(ctx, cp, rev)
	require.NoError(t, err)
	require.NoError(t, jobs.WakeCancel(family, r.ID))
	require.Equal(t, r.ID, receive(ctx, t, woken))
	s.report(ctx, agent, &r)
	require.NoError(t, d.Finish(ctx))
	history, _, err := api.NewestJobEvents(ctx, r.ID, 0, 100, 16<<20)
	require.NoError(t, err)
	require.Len(t, history, 1+reported)

	s.fold(ctx, jobs, &r, d.Revision)
	require.NoError(t, jobs.FenceSession(ctx, family, session.ID()))
	receive(ctx, t, session.Lost())
	second, err := agent.OpenSession(ctx, family, "instance")
	require.NoError(t, err)
	require.NoError(t, second.Close(ctx))
	s.watch(ctx, api, r.ID)
}

// admit writes what an admission writes.
func (s *site) admit(ctx context.Context, api *Conn, family node.Family) job.Record {
	t := s.t
	r := leafRecord(newID(t), "node-"+string(family))
	r.Family = string(family)
	at := node.Ref{RackID: r.RackID, NodeID: r.NodeID}
	records, capacity, err := api.Capacity(ctx)
	require.NoError(t, err)
	tx := api.Begin()
	tx.SetCapacity(records+1, capacity)
	tx.HoldNode(at, &rackbusv1.NodeLock{V: 1, JobId: r.ID.String()}, Absent)
	tx.CreateRecord(&r)
	cmd := &rackbusv1.JobCommand{
		V: 1, JobId: r.ID.String(), Family: r.Family, Target: &rackbusv1.NodeTarget{RackId: at.RackID, NodeId: at.NodeID},
	}
	tx.PutCommand(cmd, time.Hour)
	tx.ParkCommand(cmd, time.Hour)
	tx.ArmTimer(TimerDeadline, r.ID, time.Now().Add(time.Hour))
	tx.PutAdmission(r.ID, &rackbusv1.AdmissionRecord{V: 1})
	tx.PutIdempotency("key-"+string(family), &rackbusv1.JobIdempotency{V: 1, JobId: r.ID.String()}, time.Hour)
	_, err = tx.Commit(ctx)
	require.NoError(t, err)
	_, err = api.Idempotency(ctx, "key-"+string(family))
	require.NoError(t, err)
	require.NoError(t, api.DropIdempotency(ctx, "key-"+string(family)))
	_, err = api.Records(ctx, []job.ID{r.ID}, 0)
	require.NoError(t, err)
	return r
}

func (s *site) query(ctx context.Context, family node.Family, agent *Conn, askers ...*Conn) {
	t := s.t
	svc, err := agent.Serve(family, "1.0.0", 1, map[string]RequestHandler{
		"power_get": func(context.Context, *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
			return &rackbusv1.NodeReply{V: 1, PowerState: "on"}
		},
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, svc.Close()) }()
	require.NoError(t, agent.nc.Flush())
	for _, asker := range append(askers, askers...) {
		reply, err := asker.Request(ctx, family, "power_get", &rackbusv1.NodeRequest{V: 1})
		require.NoError(t, err)
		require.Equal(t, "on", reply.GetPowerState())
	}
}

// reported is how many events an agent reports at once, enough to be written
// together.
const reported = 20

func (s *site) report(ctx context.Context, agent *Conn, r *job.Record) {
	var wg sync.WaitGroup
	errs := make([]error, reported)
	for i := range errs {
		wg.Go(func() {
			e := event(r.ID, job.EventProgress, 1, uint64(i+1))
			e.NodeID = r.NodeID
			errs[i] = agent.PublishEvent(ctx, e)
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(s.t, err)
	}
}

// fold commits the end of a job as the jobs service does.
func (s *site) fold(ctx context.Context, jobs *Conn, r *job.Record, command Revision) {
	t := s.t
	p := r.ID.Partition(Partitions)
	lead, err := jobs.LeadFold(ctx, p, "jobs")
	require.NoError(t, err)
	defer func() { require.NoError(t, lead.Release(ctx)) }()
	sequence, cursor, err := jobs.Cursor(ctx, p)
	require.NoError(t, err)
	reader, err := jobs.ReadEvents(ctx, p, sequence)
	require.NoError(t, err)
	e, err := reader.Take(receive(ctx, t, reader.Wait()))
	require.NoError(t, err)
	reader.Close()
	at := node.Ref{RackID: r.RackID, NodeID: r.NodeID}
	lock, err := jobs.Lock(ctx, at)
	require.NoError(t, err)
	done := *r
	done.State, done.FinishedAt = job.StateCompleted, time.Now()
	tx := jobs.Begin()
	tx.SealRecord(&done, time.Hour, nil)
	tx.FreeNode(at, r.ID, lock.Revision)
	tx.ArmTimer(TimerReap, r.ID, time.Now())
	tx.PutOutbox(p, e.Sequence, []*rackbusv1.JobTransition{transition(r.ID, 1, rackbusv1.JobState_JOB_STATE_UNSPECIFIED, rackbusv1.JobState_JOB_STATE_COMPLETED)})
	tx.SetCursor(p, e.Sequence, cursor)
	_, err = tx.Commit(ctx)
	require.NoError(t, err)
	require.NoError(t, jobs.PublishOutbox(ctx, p))
	require.NoError(t, jobs.EraseCommand(ctx, command))
	require.NoError(t, jobs.DropParked(ctx, at, r.ID))
}

// timers handles the retention timers that the folds have armed.
func (s *site) timers(ctx context.Context, jobs *Conn) {
	t := s.t
	fired := make(chan Timer, 10)
	tctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		done <- jobs.HandleTimers(tctx, func(_ context.Context, timer Timer) error { fired <- timer; return nil })
	}()
	for range commandFamilies {
		timer := receive(ctx, t, fired)
		require.Equal(t, TimerReap, timer.Kind)
		records, capacity, err := jobs.Capacity(ctx)
		require.NoError(t, err)
		family, err := jobs.CountFamily(ctx, timer.ID)
		require.NoError(t, err)
		tx := jobs.Begin()
		tx.SetCapacity(records-family, capacity)
		tx.MarkGone(timer.ID)
		_, err = tx.Commit(ctx)
		require.NoError(t, err)
		require.NoError(t, jobs.PurgeFamily(ctx, timer.ID))
	}
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, jobs.ScanRecords(ctx, 0, 0, func(job.Record) {}))
}

// watch follows the records until the job's is seen.
func (s *site) watch(ctx context.Context, api *Conn, id job.ID) {
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	seen := false
	err := api.WatchRecords(wctx, func(u RecordUpdate) {
		if u.Record.ID == id {
			seen = true
			stop()
		}
	})
	require.ErrorIs(s.t, err, context.Canceled)
	require.True(s.t, seen)
	require.NoError(s.t, api.TopLevelRecords(ctx, func(job.Record) {}))
}

// subscribe reads the public events with the consumer that an operator has made.
func (s *site) subscribe(ctx context.Context) {
	t := s.t
	operator := rawJetStream(t, s.url(userOperator))
	_, err := operator.CreateConsumer(ctx, streamPublic, jetstream.ConsumerConfig{Durable: "site", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	nc, err := nats.Connect(s.url(userSubscriber), nats.CustomInboxPrefix("_INBOX_subscriber"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { t.Errorf("subscriber: %v", err) }))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(patience))
	require.NoError(t, err)
	cons, err := js.Consumer(ctx, streamPublic, "site")
	require.NoError(t, err)
	for range 2 {
		m, err := cons.Next()
		require.NoError(t, err)
		require.NoError(t, m.DoubleAck(ctx))
	}
}

// evidence leaves a bundle as an agent does, gives it out as the API does, and
// removes it as the jobs service does, which also looks up the node.
func (s *site) evidence(ctx context.Context, api, jobs, agent *Conn) {
	t := s.t
	id := newID(t)
	_, err := agent.PutEvidence(ctx, EvidenceBundle(id), strings.NewReader("bundle"))
	require.NoError(t, err)
	_, err = agent.PutEvidence(ctx, EvidenceManifest(id), strings.NewReader("manifest"))
	require.NoError(t, err)
	e, err := api.Evidence(ctx, EvidenceManifest(id))
	require.NoError(t, err)
	require.NoError(t, api.ReadEvidence(ctx, e, io.Discard))
	_, _, err = jobs.Node(ctx, node.Ref{RackID: "r", NodeID: "none"})
	require.ErrorIs(t, err, ErrNotFound)
	require.NoError(t, jobs.DropEvidence(ctx, id))
	_, err = api.Evidence(ctx, EvidenceManifest(id))
	require.ErrorIs(t, err, ErrNotFound)
}

// TestRolesKeepToTheirOwn tries what the shipped rights must refuse.
func TestRolesKeepToTheirOwn(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	require.NoError(t, s.connect(userJobs).Provision(t.Context()))
	id := newID(t)
	at := node.Ref{RackID: "r", NodeID: "n"}
	for user, subjects := range map[string][]string{
		userCompute: {
			recordSubject(id), lockSubject(at), cursorSubject(0), subjCapacity,
			commandSubject(node.FamilyCompute, at), commandSubject(node.FamilyPowerShelf, at), timerSubject(TimerReap, id),
			checkpointSubject(node.FamilyPowerShelf, id), sessionSubject(node.FamilyPowerShelf, "x"), foldLeaseSubject(0),
			publicSubject("r", "n", id, "t", "completed"), inventoryNodeSubject(at), cancelSubject(node.FamilyCompute, id),
			"_INBOX_api.x", "$JS.API.STREAM.DELETE.KV_rb", "$JS.API.STREAM.PURGE.KV_rb", "$JS.API.STREAM.MSG.DELETE.KV_rb",
			"$JS.API.CONSUMER.CREATE.KV_rb.x", "$JS.API.CONSUMER.MSG.NEXT.KV_rb.agent-powershelf",
			"$JS.API.DIRECT.GET.KV_rb." + commandSubject(node.FamilyPowerShelf, at),
			"$JS.API.STREAM.MSG.GET.KV_rb", "$JS.API.STREAM.MSG.GET.KV_rb_ckpt",
			subjFwObject + "x", subjBlobChunk + "x", Digest{}.metaSubject(),
			"$JS.API.STREAM.PURGE.OBJ_rb_fw", "$JS.API.STREAM.MSG.DELETE.OBJ_rb_fw",
			"$JS.API.STREAM.PURGE.OBJ_rb_evidence", "$JS.API.DIRECT.GET.OBJ_rb_evidence." + evidence().metaSubject("x"),
		},
		userSubscriber: {
			"$JS.API.DIRECT.GET.KV_rb", "$JS.API.DIRECT.GET.KV_rb." + recordSubject(id), "$JS.API.STREAM.MSG.GET.KV_rb",
			"$JS.API.STREAM.INFO.KV_rb", "$JS.API.CONSUMER.CREATE.KV_rb.x", "$JS.API.CONSUMER.CREATE.RACKBUS_EVENTS.x",
			recordSubject(id), commandSubject(node.FamilyCompute, at), eventSubject(0, "r", "n", id, "finished"),
		},
		userAPI: {cursorSubject(0), foldLeaseSubject(0), outboxSubject(0, 1), publicSubject("r", "n", id, "t", "completed"),
			"$JS.API.STREAM.DELETE.KV_rb", "$JS.API.STREAM.CREATE.X"},
		userJobs: {"$JS.API.STREAM.DELETE.KV_rb", inventoryNodeSubject(at), requestSubject(node.FamilyCompute, "firmware_inventory")},
	} {
		for _, subject := range subjects {
			said := s.refused(user, func(nc *nats.Conn) { require.NoError(t, nc.Publish(subject, []byte("x"))) })
			require.Contains(t, strings.ToLower(said), "permissions violation for publish", "%s publishes %s", user, subject)
		}
	}
	for user, subjects := range map[string][]string{
		userCompute:    {"$KV.rb.>", "rb.cmd.>", "rb.req.powershelf.>", "_INBOX_api.>", "rb.evt.v1.>"},
		userSubscriber: {">", "$KV.rb.>", "rb.cmd.>", "_INBOX_api.>", "rackbus.events.>"},
	} {
		for _, subject := range subjects {
			said := s.refused(user, func(nc *nats.Conn) {
				_, err := nc.SubscribeSync(subject)
				require.NoError(t, err)
			})
			require.Contains(t, strings.ToLower(said), "permissions violation for subscription", "%s subscribes to %s", user, subject)
		}
	}

	// The same through the package: nothing is written.
	agent, operator := s.connect(userCompute), s.connect(userOperator)
	r := leafRecord(id, "n")
	tx := agent.Begin()
	tx.CreateRecord(&r)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := tx.Commit(ctx)
	require.Error(t, err)
	_, _, err = operator.Record(t.Context(), id)
	require.ErrorIs(t, err, ErrNotFound)
}
