// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// tell adds events to the history of every job, which say their numbers.
func (b *backend) tell(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range n {
		seq := uint64(len(b.events)) + 1
		b.events = append(b.events, &rackbusv1.JobHistoryEntry{
			Sequence: seq, At: timestamppb.New(epoch), Kind: "progress", Description: fmt.Sprintf("step %d.", seq),
		})
	}
}

// TestAPageReadsOnlyNewEvents looks at a page again and again, as its script does.
func TestAPageReadsOnlyNewEvents(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", running, 10))
	s.tell(3)
	require.Contains(t, s.page("/jobs/j1"), "step 3.")
	body := s.page("/jobs/j1")
	require.Contains(t, body, "step 1.")
	s.tell(1)
	body = s.page("/jobs/j1")
	for _, step := range []string{"step 1.", "step 4."} {
		require.Equal(t, 1, strings.Count(body, step), step)
	}
	require.Less(t, strings.Index(body, "step 4."), strings.Index(body, "step 1."), "the newest first")
	require.Equal(t, []int{3, 0, 1}, s.eventsRead)

	s.historyFault = status.Error(codes.Unavailable, "no broker")
	require.Contains(t, s.page("/jobs/j1"), "could not be read: no broker")
	s.historyFault = nil
	require.Contains(t, s.page("/jobs/j1"), "step 4.")

	// What the API cannot read, as an event of a later version, takes nothing away.
	s.historyUnread = 1
	for range 2 {
		body = s.page("/jobs/j1")
		require.Contains(t, body, "step 4.")
		require.NotContains(t, body, "still older")
	}
}

// TestALongHistoryTellsWhatIsMissing: a page says how much it does not show, whether it
// was left out by the page or by the API, and keeps what else its address selects.
func TestALongHistoryTellsWhatIsMissing(t *testing.T) {
	s := newSite(t)
	parent := update("p", "", running, 10)
	parent.Kind = rackbusv1.JobKind_JOB_KIND_PARENT
	s.put(parent)
	s.historyLimit = 100
	s.tell(130)
	body := s.page("/jobs/p?state=failed&done=cancel")
	require.Contains(t, body, "Show 50 older events")
	require.Contains(t, body, "30 still older events are not shown")
	require.Contains(t, body, `href="?events=all&amp;state=failed#events-title"`)
	require.NotContains(t, body, "step 80.")
	body = s.page("/jobs/p?events=all")
	require.Contains(t, body, "step 31.")
	require.NotContains(t, body, "step 30.")
	require.Contains(t, body, "30 still older events are not shown")

	// So much came that what is known does not lead up to it.
	s.tell(120)
	body = s.page("/jobs/p?events=all")
	require.Contains(t, body, "step 151.")
	require.NotContains(t, body, "step 130.")
	require.Contains(t, body, "150 still older events are not shown")
}

func TestHistoriesAreBounded(t *testing.T) {
	s := newSite(t)
	h := s.console.histories
	s.tell(10)
	var wg sync.WaitGroup
	for i := range 3 * maxHistories {
		wg.Go(func() {
			events, omitted, err := h.read(t.Context(), fmt.Sprint(i/3))
			if err != nil || len(events) != 10 || omitted != 0 {
				t.Errorf("%d events, %d omitted, %v", len(events), omitted, err)
			}
		})
	}
	wg.Wait()
	require.Len(t, s.eventsRead, 3*maxHistories)
	_, _, err := h.read(t.Context(), "one more")
	require.NoError(t, err)
	require.Len(t, h.known, maxHistories)
	require.Len(t, h.recent, maxHistories)

	large := &rackbusv1.JobHistoryEntry{Description: strings.Repeat("x", maxHistoryBytes/4)}
	require.Len(t, newest([]*rackbusv1.JobHistoryEntry{large, large, large, large, large, large}), 3)
	large.Description = strings.Repeat("x", 2*maxHistoryBytes)
	require.Len(t, newest([]*rackbusv1.JobHistoryEntry{large, large}), 1, "the newest in any case")
	require.Len(t, newest(make([]*rackbusv1.JobHistoryEntry, maxHistory+1)), maxHistory)
}
