// SPDX-License-Identifier: Apache-2.0

package reqlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestKeepsWritesApartFromReads(t *testing.T) {
	l := New(Options{Keep: 3})
	l.Add(Entry{Method: "POST", Path: "/w"})
	for i := range 10 {
		l.Add(Entry{Method: "GET", Path: fmt.Sprint("/r", i)})
	}
	var paths []string
	for _, e := range l.Select(Filter{}) {
		paths = append(paths, e.Path)
	}
	require.Equal(t, []string{"/w", "/r7", "/r8", "/r9"}, paths)
	require.Len(t, l.Select(Filter{Writes: true}), 1)
	require.Len(t, l.Select(Filter{After: 10}), 1)
	require.Len(t, l.Select(Filter{Method: "GET", Path: "/r?"}), 3)

	none := New(Options{Keep: -1})
	none.Add(Entry{Method: "POST"})
	require.Empty(t, none.Select(Filter{}))
}

func TestFlushesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out guarded
		l := New(Options{Writer: &out})
		l.Add(Entry{Device: "d"})
		require.Empty(t, out.String())
		time.Sleep(100*time.Millisecond + 1)
		synctest.Wait()
		require.Contains(t, out.String(), `"device":"d"`)
		l.Add(Entry{Device: "e"})
		require.NoError(t, l.Close())
		require.Contains(t, out.String(), `"device":"e"`)
		l.Add(Entry{Device: "late"})
		require.NotContains(t, out.String(), "late")
		require.NoError(t, l.Close())
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{})
		done := make(chan int)
		go func() {
			got, _ := l.Wait(t.Context(), Filter{Device: "a*"}, 2)
			done <- len(got)
		}()
		l.Add(Entry{Device: "a1"})
		l.Add(Entry{Device: "b"})
		synctest.Wait()
		select {
		case <-done:
			require.Fail(t, "one entry is not enough")
		default:
		}
		l.Add(Entry{Device: "a2"})
		require.Equal(t, 2, <-done)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Wait(ctx, Filter{}, 9)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestSelectWaitsForAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{})
		recorded := l.Answering()
		got := make(chan int)
		go func() { got <- len(l.Select(Filter{})) }()
		synctest.Wait()
		later := l.Answering() // began after the question was asked
		l.Add(Entry{})
		recorded()
		require.Equal(t, 1, <-got)
		later()
	})
}

// guarded is a writer that is read while the log's timer writes.
type guarded struct {
	mu   sync.Mutex
	text strings.Builder
}

func (g *guarded) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Write(b)
}

func (g *guarded) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.String()
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

var errBroken = errors.New("broken")

func TestWriteErrorIsReported(t *testing.T) {
	l := New(Options{Writer: broken{}})
	l.Add(Entry{})
	require.ErrorIs(t, l.Close(), errBroken)
}
