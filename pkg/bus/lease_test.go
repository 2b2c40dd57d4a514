// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
)

func TestOneFoldLeadsAPartition(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	other := open(t, b.URL())
	lease, err := c.LeadFold(t.Context(), 1, "a")
	require.NoError(t, err)
	_, err = other.LeadFold(t.Context(), 1, "b")
	require.ErrorIs(t, err, ErrConflict)
	_, err = other.LeadFold(t.Context(), 2, "b")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	<-lease.Lost()
	_, err = other.LeadFold(t.Context(), 1, "b")
	require.NoError(t, err, "a released partition is free at once")
}

func TestLeaseOfADeadProcessExpires(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	dead := open(t, b.URL())
	_, err := dead.LeadFold(t.Context(), 1, "a")
	require.NoError(t, err)
	dead.Close()
	start := time.Now()
	await(t, "the lease to expire", func() bool {
		_, err := c.LeadFold(t.Context(), 1, "b")
		return err == nil
	})
	require.Greater(t, time.Since(start), quick().FoldTTL-quick().FoldRenew)
}

// TestSessionWithoutBrokerStopsActingBeforeOthersMayTakeOver cuts an agent off.
func TestSessionWithoutBrokerStopsActingBeforeOthersMayTakeOver(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	proxy := startCutter(t, b.URL())
	agent := open(t, proxy.url())
	await(t, "the connection", func() bool { return agent.nc.IsConnected() })
	s, err := agent.OpenSession(t.Context(), node.FamilyCompute, "agent")
	require.NoError(t, err)
	require.True(t, s.Valid())
	ctx, cancel := s.Context(t.Context())
	defer cancel()

	proxy.set(cutAll)
	<-ctx.Done()
	require.False(t, s.Valid())
	require.LessOrEqual(t, s.Remaining(), time.Duration(0))
	alive, err := c.SessionAlive(t.Context(), node.FamilyCompute, s.ID())
	require.NoError(t, err)
	require.True(t, alive, "the key outlives the validity by the margin")
	select {
	case <-s.Lost():
		t.Fatal("a session that cannot be renewed for a while is not lost yet")
	default:
	}
	await(t, "the session to expire", func() bool {
		alive, err := c.SessionAlive(t.Context(), node.FamilyCompute, s.ID())
		require.NoError(t, err)
		return !alive
	})
	proxy.set(cutNothing)
	select {
	case <-s.Lost():
	case <-time.After(patience):
		t.Fatal("the owner does not notice that its session is lost")
	}
}

func TestSessionGoesOnAfterAShortInterruption(t *testing.T) {
	t.Parallel()
	_, b := provisioned(t)
	proxy := startCutter(t, b.URL())
	agent := open(t, proxy.url(), func(o *Options) { o.Timing.SessionTTL = 20 * time.Second })
	await(t, "the connection", func() bool { return agent.nc.IsConnected() })
	s, err := agent.OpenSession(t.Context(), node.FamilyCompute, "agent")
	require.NoError(t, err)
	proxy.set(cutAll)
	await(t, "the interruption", func() bool { return !agent.nc.IsConnected() })
	proxy.set(cutNothing)
	revision := func() Revision {
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		return s.l.rev
	}
	before := revision()
	await(t, "a renewal", func() bool { return revision() > before })
	require.True(t, s.Valid())
}

// TestFencedSession checks that the owner cannot go on, and that nobody takes
// its jobs over before its validity is certainly over.
func TestFencedSession(t *testing.T) {
	t.Parallel()
	c, b := provisioned(t)
	agent := open(t, b.URL())
	s, err := agent.OpenSession(t.Context(), node.FamilyCompute, "agent")
	require.NoError(t, err)
	ctx, cancel := s.Context(t.Context())
	defer cancel()
	fenced := time.Now()
	require.NoError(t, c.FenceSession(t.Context(), node.FamilyCompute, s.ID()))
	<-s.Lost()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), ErrSessionLost)
	require.False(t, s.Valid())
	alive, err := c.SessionAlive(t.Context(), node.FamilyCompute, s.ID())
	require.NoError(t, err)
	require.True(t, alive)
	require.NoError(t, c.FenceSession(t.Context(), node.FamilyCompute, s.ID()), "fencing again prolongs nothing")
	await(t, "the fence to expire", func() bool {
		alive, err := c.SessionAlive(t.Context(), node.FamilyCompute, s.ID())
		require.NoError(t, err)
		return !alive
	})
	require.Greater(t, time.Since(fenced), quick().SessionTTL-quick().SessionMargin)
	require.NoError(t, c.FenceSession(t.Context(), node.FamilyCompute, s.ID()), "an expired session needs no fence")
	alive, err = c.FamilyAlive(t.Context(), node.FamilyCompute)
	require.NoError(t, err)
	require.False(t, alive)
}

func TestSessionsAreCounted(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	n, err := c.Sessions(t.Context(), "jobs")
	require.NoError(t, err)
	require.Zero(t, n)
	a, err := c.OpenSession(t.Context(), "jobs", "a")
	require.NoError(t, err)
	_, err = c.OpenSession(t.Context(), "jobs", "a")
	require.NoError(t, err)
	_, err = c.OpenSession(t.Context(), node.FamilyCompute, "a")
	require.NoError(t, err)
	n, err = c.Sessions(t.Context(), "jobs")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, a.Close(t.Context()))
	n, err = c.Sessions(t.Context(), "jobs")
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// In a cluster a renewal can be refused because an earlier one is still under
// way. That one may get lost with the leader, so it must not prolong anything.
func TestRenewalUnderWayProlongsNothing(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	l, err := c.acquireLease(t.Context(), sessionSubject("compute", "s"), []byte("mine"), time.Minute, time.Hour, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.release(context.WithoutCancel(t.Context())) })
	till := func() time.Time { l.mu.Lock(); defer l.mu.Unlock(); return l.validTill }
	before, rev := till(), l.rev
	l.unanswered = time.Now()
	l.found(rev, rev)
	require.Equal(t, before, till())
	require.False(t, l.unanswered.IsZero(), "its answer is still missing")
	sent := l.unanswered
	l.found(rev, rev+1)
	require.Equal(t, sent.Add(time.Minute-time.Second), till(), "one that arrived counts from when it was sent")
	l.rev = rev // the key that release removes
}
