// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimers(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	past, replaced, failing := newID(t), newID(t), newID(t)
	fired := make(chan Timer, 10)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	refused := false
	go func() {
		done <- c.HandleTimers(ctx, func(_ context.Context, tm Timer) error {
			if tm.ID == failing && !refused {
				refused = true
				return errors.New("not now")
			}
			if since := time.Since(tm.At); since > patience {
				return fmt.Errorf("fired %s ago", since)
			}
			tm.At = time.Time{}
			fired <- tm
			return nil
		})
	}()
	require.NoError(t, c.ArmTimer(t.Context(), TimerCancel, past, time.Now().Add(-time.Minute)))
	require.Equal(t, Timer{Kind: TimerCancel, ID: past}, <-fired, "a moment that is over is now")

	armed := time.Now()
	require.NoError(t, c.ArmTimer(t.Context(), TimerDeadline, replaced, armed.Add(1700*time.Millisecond)))
	require.NoError(t, c.ArmTimer(t.Context(), TimerDeadline, replaced, armed.Add(2*time.Second)))
	require.Equal(t, Timer{Kind: TimerDeadline, ID: replaced}, <-fired)
	require.GreaterOrEqual(t, time.Since(armed), 2*time.Second)

	require.NoError(t, c.ArmTimer(t.Context(), TimerReap, failing, time.Now()))
	require.Equal(t, Timer{Kind: TimerReap, ID: failing}, <-fired)
	require.True(t, refused, "a timer whose handler failed fires again")

	stop()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience):
		t.Fatal("timers do not stop at once")
	}
	require.Empty(t, fired)
}

// Timers that are due together are handled together: each of these waits for all.
func TestTimersAreHandledTogether(t *testing.T) {
	t.Parallel()
	const due = 8
	c, _ := provisioned(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	all.Add(due)
	handled := make(chan Timer, due)
	done := make(chan error, 1)
	go func() {
		done <- c.HandleTimers(ctx, func(_ context.Context, tm Timer) error {
			all.Done()
			all.Wait()
			handled <- tm
			return nil
		})
	}()
	for range due {
		require.NoError(t, c.ArmTimer(t.Context(), TimerCancel, newID(t), time.Now()))
	}
	for range due {
		select {
		case <-handled:
		case <-time.After(patience):
			t.Fatal("timers wait for each other")
		}
	}
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
}

// Timers that take long keep their own places and no others.
func TestSlowTimersHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	c, _ := provisioned(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const others = 2 * timerSlots
	slow, handled, release := make(chan struct{}), make(chan Timer, others), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- c.HandleTimers(ctx, func(_ context.Context, tm Timer) error {
			if tm.Kind == TimerCleanup {
				close(slow)
				<-release
				return nil
			}
			handled <- tm
			return nil
		})
	}()
	require.NoError(t, c.ArmTimer(t.Context(), TimerCleanup, newID(t), time.Now()))
	<-slow
	var arming sync.WaitGroup
	for range others {
		arming.Go(func() { _ = c.ArmTimer(t.Context(), TimerCancel, newID(t), time.Now()) })
	}
	arming.Wait()
	for i := range others {
		select {
		case <-handled:
		case <-time.After(patience):
			t.Fatalf("%d timers of %d handled", i, others)
		}
	}
	close(release)
	stop()
	require.ErrorIs(t, <-done, context.Canceled)
}

// A fired timer waits as long as the events do: whoever reads these again after
// a long absence must find the deadlines too.
func TestFiredTimerWaitsAsLongAsEvents(t *testing.T) {
	t.Parallel()
	wait, err := time.ParseDuration(timerMessage(TimerDeadline, newID(t), time.Now()).Header.Get(hdrScheduleTTL))
	require.NoError(t, err)
	require.Equal(t, eventsMaxAge, wait)
}
