// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// limitAgents changes the limit of the compute agents' consumer as an operator does.
func limitAgents(t *testing.T, js jetstream.JetStream, limit int) {
	t.Helper()
	cons, err := js.Consumer(t.Context(), streamState, commandConsumer(node.FamilyCompute))
	require.NoError(t, err)
	cfg := cons.CachedInfo().Config
	cfg.MaxAckPending = limit
	_, err = js.UpdateConsumer(t.Context(), streamState, cfg)
	require.NoError(t, err)
}

// A service that needs a larger limit than a consumer has does not edit it in place. An operator does, and what has
// waited is handed out.
func TestA7BacklogDrainsAfterALimitIsRaised(t *testing.T) {
	t.Parallel()
	const limit, jobs = 3, 12
	c, b := provisioned(t)
	js := rawJetStream(t, b.URL())
	limitAgents(t, js, limit)
	tx := c.Begin()
	for i := range jobs {
		r := leafRecord(newID(t), fmt.Sprint("n", i))
		tx.CreateRecord(&r)
		tx.PutCommand(&rackbusv1.JobCommand{
			V: 1, JobId: r.ID.String(), Family: "compute", Target: &rackbusv1.NodeTarget{RackId: "rack", NodeId: r.NodeID},
		}, time.Hour)
	}
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)
	q, err := c.Commands(t.Context(), node.FamilyCompute)
	require.NoError(t, err)
	seen := map[job.ID]*Delivery{}
	take := func(ctx context.Context, n int) error {
		return q.Fetch(ctx, n, func(d *Delivery) { seen[d.ID] = d })
	}
	require.NoError(t, take(t.Context(), limit))
	require.Len(t, seen, limit)

	upgraded := open(t, b.URL())
	require.ErrorContains(t, upgraded.Provision(t.Context()), "consumer agent-compute: max_ack_pending is 3, needed is 20000")
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := take(short, 1); err != nil {
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Len(t, seen, limit, "nothing was changed")

	limitAgents(t, js, maxAckPending)
	require.NoError(t, upgraded.Provision(t.Context()))
	for len(seen) < jobs {
		require.NoError(t, take(t.Context(), jobs-len(seen)))
	}
	for _, d := range seen {
		require.NoError(t, d.Finish(t.Context()))
	}
	cons, err := js.Consumer(t.Context(), streamState, commandConsumer(node.FamilyCompute))
	require.NoError(t, err)
	require.Zero(t, cons.CachedInfo().NumPending)
	require.Zero(t, cons.CachedInfo().NumAckPending)
}

// No message is meant for two consumers, and one that would take another's is found at the start.
func TestA9FiltersAreDisjoint(t *testing.T) {
	t.Parallel()
	all := consumers(DefaultTiming(1))
	for i, a := range all {
		for _, other := range all[i+1:] {
			require.False(t, server.SubjectsCollide(a.FilterSubject, other.FilterSubject), "%s, %s", a.FilterSubject, other.FilterSubject)
		}
	}
	c, b := provisioned(t)
	js := rawJetStream(t, b.URL())
	cons, err := js.Consumer(t.Context(), streamState, commandConsumer(node.FamilyCompute))
	require.NoError(t, err)
	cfg := cons.CachedInfo().Config
	cfg.FilterSubject = subjCmdPrefix + ">"
	_, err = js.UpdateConsumer(t.Context(), streamState, cfg)
	require.NoError(t, err)
	for _, start := range []func(context.Context) error{c.Provision, open(t, b.URL()).Verify} {
		err := start(t.Context())
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, "consumer agent-compute: filter_subject is rb.cmd.>, needed is rb.cmd.compute.>")
	}
}

// patientRequests lets the many tries of these tests wait for each other.
func patientRequests(o *Options) { o.Timing.Request = patience }

func TestB1LeaseHasOneHolder(t *testing.T) {
	t.Parallel()
	const callers, rounds, connections = 50, 200, 5
	_, b := provisioned(t)
	var holders, held, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range connections {
		c := open(t, b.URL(), patientRequests)
		for j := range callers / connections {
			wg.Go(func() {
				for round := range rounds {
					l, err := c.acquireLease(t.Context(), foldLeaseSubject(1), fmt.Appendf(nil, "%d/%d/%d", i, j, round), time.Minute, time.Hour, 0)
					if errors.Is(err, ErrConflict) {
						refused.Add(1)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n := holders.Add(1); n != 1 {
						t.Errorf("%d holders", n)
					}
					held.Add(1)
					holders.Add(-1)
					if err := l.release(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, int64(callers*rounds), held.Load()+refused.Load())
	require.Greater(t, held.Load(), int64(callers))
}

// Leases that nobody gives back pass on by their expiry. Nobody holds one while another's is still valid.
func TestB4LeasesExpireWithoutOverlap(t *testing.T) {
	t.Parallel()
	const callers, ttl, margin, enough = 8, time.Second, 200 * time.Millisecond, 3
	_, b := provisioned(t)
	type tenure struct {
		from, to  time.Time
		abandoned bool
	}
	var mu sync.Mutex
	var tenures []tenure
	abandoned := 0
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var wg sync.WaitGroup
	for i := range callers {
		c := open(t, b.URL(), patientRequests)
		random := rand.New(rand.NewPCG(4, uint64(i)))
		wg.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				l, err := c.acquireLease(ctx, foldLeaseSubject(1), fmt.Appendf(nil, "%d/%d", i, round), ttl, time.Hour, margin)
				if errors.Is(err, ErrConflict) || ctx.Err() != nil {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				own := tenure{from: time.Now(), abandoned: random.IntN(4) == 0}
				own.to = own.from.Add(l.remaining())
				if !own.abandoned {
					own.to = time.Now()
				}
				mu.Lock()
				tenures = append(tenures, own)
				if own.abandoned {
					if abandoned++; abandoned > enough {
						cancel()
					}
				}
				mu.Unlock()
				if own.abandoned {
					l.markLost() // its holder has died: nobody renews or removes the key
					<-l.renewalDone
				} else if err := l.release(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Greater(t, abandoned, enough, "leases expired")
	slices.SortFunc(tenures, func(a, b tenure) int { return a.from.Compare(b.from) })
	for i := 1; i < len(tenures); i++ {
		require.False(t, tenures[i].from.Before(tenures[i-1].to), "%+v, %+v", tenures[i-1], tenures[i])
	}
}

func TestB5LateReleaseKeepsTheNextHolder(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	other := open(t, b.URL())
	late, err := c.acquireLease(t.Context(), foldLeaseSubject(1), []byte("a"), time.Second, time.Hour, 0)
	require.NoError(t, err)
	var next *lease
	await(t, "the lease to expire", func() bool {
		next, err = other.acquireLease(t.Context(), foldLeaseSubject(1), []byte("b"), time.Minute, time.Hour, 0)
		return err == nil
	})
	require.NoError(t, late.release(t.Context()))
	_, err = c.acquireLease(t.Context(), foldLeaseSubject(1), []byte("c"), time.Minute, time.Hour, 0)
	require.ErrorIs(t, err, ErrConflict, "the next holder still has it")
	require.True(t, next.valid())
	require.NoError(t, next.release(t.Context()))
}

// A bucket that cannot expire keys is refused at the start, and nothing is written to it that would stay for ever. Once
// it is as needed, leases expire.
func TestB7BucketWithoutExpiryIsRefused(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	js := rawJetStream(t, b.URL())
	i := slices.IndexFunc(streams(1), func(s jetstream.StreamConfig) bool { return s.Name == streamSessions })
	want := streams(1)[i]
	old := want
	old.AllowMsgTTL, old.SubjectDeleteMarkerTTL = false, 0
	require.NoError(t, js.DeleteStream(t.Context(), streamSessions))
	_, err := js.CreateStream(t.Context(), old)
	require.NoError(t, err)
	for _, start := range []func(context.Context) error{c.Provision, c.Verify} {
		err := start(t.Context())
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, "stream KV_rb_sess: allow_msg_ttl is false, needed is true")
	}
	_, err = c.LeadFold(t.Context(), 1, "a")
	require.Error(t, err, "a lease that never expires is not taken")

	_, err = js.UpdateStream(t.Context(), want)
	require.NoError(t, err)
	require.NoError(t, c.Provision(t.Context()))
	dead := open(t, b.URL())
	_, err = dead.LeadFold(t.Context(), 1, "a")
	require.NoError(t, err)
	dead.Close()
	await(t, "the lease to expire", func() bool {
		_, err := c.LeadFold(t.Context(), 1, "b")
		return err == nil
	})
}

// watched is what a process that follows the records knows of them.
type watched struct {
	mu      sync.Mutex
	records map[job.ID]Revision
	starts  int
}

// follow watches the records until the test ends, and starts again when a watch fails, as the API does.
func follow(t *testing.T, c *Conn) *watched {
	t.Helper()
	w := &watched{records: map[job.ID]Revision{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			w.mu.Lock()
			w.starts++
			w.mu.Unlock()
			_ = c.WatchRecords(ctx, func(u RecordUpdate) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if !u.Record.ID.IsZero() {
					w.records[u.Record.ID] = u.Revision
				}
			})
			_ = pause(ctx, pollInterval) // the loop looks at ctx
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *watched) has(ids []job.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if _, ok := w.records[id]; !ok {
			return false
		}
	}
	return true
}

func storeRecord(t *testing.T, c *Conn) job.ID {
	t.Helper()
	r := leafRecord(newID(t), "n")
	tx := c.Begin()
	tx.CreateRecord(&r)
	_, err := tx.Commit(t.Context())
	require.NoError(t, err)
	return r.ID
}

// What changes while a watcher is cut off reaches it soon after it is back, and however often that happens, no watch is
// left behind at the broker.
func TestB9B10WatchSurvivesCuts(t *testing.T) {
	t.Parallel()
	direct, b := provisioned(t)
	proxy := startCutter(t, b.URL())
	c := open(t, proxy.url(), func(o *Options) { o.ReconnectWait = pollInterval })
	w := follow(t, c)
	ids := []job.ID{storeRecord(t, direct)}
	await(t, "the first record", func() bool { return w.has(ids) })
	js := rawJetStream(t, b.URL())
	state, err := js.Stream(t.Context(), streamState)
	require.NoError(t, err)
	count := func() int {
		info, err := state.Info(t.Context())
		require.NoError(t, err)
		return info.State.Consumers
	}
	before := count()
	t.Run("B9 changes during a cut", func(t *testing.T) {
		proxy.set(cutAll)
		await(t, "the cut", func() bool { return !c.nc.IsConnected() })
		for range 3 {
			ids = append(ids, storeRecord(t, direct))
		}
		proxy.set(cutNothing)
		back := time.Now()
		await(t, "what has changed", func() bool { return w.has(ids) })
		require.Less(t, time.Since(back), patience)
	})
	t.Run("B10 the connection flaps", func(t *testing.T) {
		for range 50 {
			proxy.set(cutAll)
			await(t, "the cut", func() bool { return !c.nc.IsConnected() })
			proxy.set(cutNothing)
			await(t, "the connection", func() bool { return c.nc.IsConnected() })
		}
		ids = append(ids, storeRecord(t, direct))
		await(t, "the last record", func() bool { return w.has(ids) })
		await(t, "watches to be gone", func() bool { return count() <= before+1 })
	})
}

// The client library closes a connection for good after 60 tries, unless told otherwise.
func TestC8NeverGivesUpWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	_, b := provisioned(t)
	proxy := startCutter(t, b.URL())
	c := open(t, proxy.url(), func(o *Options) { o.ReconnectWait = time.Millisecond })
	await(t, "the connection", func() bool { return c.nc.IsConnected() })
	require.Equal(t, -1, c.nc.Opts.MaxReconnect)
	proxy.set(cutAll)
	tries := proxy.refused.Load()
	await(t, "more tries than the library's limit", func() bool { return proxy.refused.Load() > tries+65 })
	proxy.set(cutNothing)
	await(t, "the connection", func() bool { return c.nc.IsConnected() })
	require.NoError(t, c.Refusal())
	require.NoError(t, c.Provision(t.Context()))
}

// A broker that does not take the credentials any more ends the connection for good, and the process hears of it.
func TestC8RefusedCredentials(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := pair.PublicKey()
	require.NoError(t, err)
	stranger, err := nkeys.CreateUser()
	require.NoError(t, err)
	strange, err := stranger.PublicKey()
	require.NoError(t, err)
	options := func(user string) *server.Options {
		return &server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, Nkeys: []*server.NkeyUser{{Nkey: user}}}
	}
	s, err := server.NewServer(options(public))
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	require.True(t, s.ReadyForConnections(patience))
	c := open(t, s.ClientURL(), func(o *Options) { o.ReconnectWait, o.NKeySeedFile = time.Millisecond, seedFile(t, pair) })
	await(t, "the connection", func() bool { return c.nc.IsConnected() })
	require.NoError(t, c.Refusal())
	require.NoError(t, s.ReloadOptions(options(strange)))
	select {
	case <-c.Refused():
	case <-time.After(patience):
		t.Fatal("the process does not hear that it is refused")
	}
	require.ErrorIs(t, c.Refusal(), ErrClosed)
	require.ErrorContains(t, c.Refusal(), "uthorization")

	late := open(t, s.ClientURL(), func(o *Options) { o.ReconnectWait, o.NKeySeedFile = time.Millisecond, seedFile(t, pair) })
	select {
	case <-late.Refused():
	case <-time.After(patience):
		t.Fatal("a process that starts with such credentials does not hear that it is refused")
	}
}

// seedFile writes the seed of a user where a process reads it from.
func seedFile(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	seed, err := pair.Seed()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "seed")
	require.NoError(t, os.WriteFile(path, seed, 0o600))
	return path
}
