// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bufio"
	"context"
	"encoding/json"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/proto/rackmanager"
)

// listener is a browser that listens to a stream.
type listener struct {
	t     *testing.T
	lines *bufio.Scanner
	resp  *http.Response
	close context.CancelFunc
}

type sent struct{ id, event, data string }

func (s *site) listen(path, last string) *listener {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+path, nil)
	require.NoError(s.t, err)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := s.client.Do(r)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { resp.Body.Close() })
	return &listener{s.t, bufio.NewScanner(resp.Body), resp, cancel}
}

// next returns the next event, false when the stream has ended. A heartbeat is one
// without a name.
func (l *listener) next() (sent, bool) {
	var e sent
	for l.lines.Scan() {
		key, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch key {
		case "id":
			e.id = value
		case "event":
			e.event = value
		case "data":
			e.data = value
		case "":
			if value == "alive" {
				return sent{}, true
			}
			if e.event != "" {
				return e, true
			}
		}
	}
	return e, false
}

func (l *listener) await(event string) sent {
	l.t.Helper()
	for {
		e, ok := l.next()
		require.True(l.t, ok, "the stream ended before %q", event)
		if e.event == event {
			return e
		}
	}
}

var livePattern = regexp.MustCompile(`<body data-live="([^"]+)"`)

// live returns the stream that a page asks for.
func (s *site) live(path string) string {
	s.t.Helper()
	found := livePattern.FindStringSubmatch(s.page(path))
	require.NotNil(s.t, found)
	return html.UnescapeString(found[1])
}

func patches(t *testing.T, e sent) map[string]string {
	t.Helper()
	var list []patch
	require.NoError(t, json.Unmarshal([]byte(e.data), &list))
	byID := map[string]string{}
	for _, p := range list {
		byID[p.ID] = p.HTML
	}
	return byID
}

func TestElevationsAreLive(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", queued, 0))
	l := s.listen(s.live("/"), "")
	require.Equal(t, "text/event-stream", l.resp.Header.Get("Content-Type"))
	s.put(update("j1", "tray-1", running, 77))
	var cell string
	var last sent
	for !strings.Contains(cell, "77 %") { // the first state may be told before
		last = l.await(eventPatch)
		cell = patches(t, last)[elementID("c", "rack-1", "tray-1")]
	}
	require.Contains(t, cell, "s-working")
	require.Contains(t, patches(t, last)["fleet"], "<b>1</b> working")
	require.Contains(t, patches(t, last)[elementID("h", "rack-1", "")], "1 working")

	// Progress alone concerns one cell and no counts.
	s.put(update("j1", "tray-1", running, 78))
	require.Len(t, patches(t, l.await(eventPatch)), 1)
	l.close()

	// What is missed while away is told after coming back.
	s.put(update("j1", "tray-1", completed, 100))
	l = s.listen(s.live("/"), last.id)
	for cell = ""; !strings.Contains(cell, "s-ok"); {
		cell = patches(t, l.await(eventPatch))[elementID("c", "rack-1", "tray-1")]
	}
	// Nothing is told twice: after the newest event there are only heartbeats.
	s.put(update("j2", "tray-2", failed, 10))
	got := patches(t, l.await(eventPatch))
	require.Contains(t, got[elementID("c", "rack-1", "tray-2")], "s-failed")
	require.NotContains(t, got, elementID("c", "rack-1", "tray-1"))
}

func TestRowsAndNodesAreLive(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", queued, 0))
	rows, node := s.listen(s.live("/racks/rack-1"), ""), s.listen(s.live("/racks/rack-1/nodes/tray-1"), "")
	s.put(update("j1", "tray-1", running, 9))
	require.Contains(t, patches(t, rows.await(eventPatch)), elementID("r", "rack-1", "tray-1"))
	node.await(eventChanged)
}

func TestANewInventoryReloads(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Timing.Heartbeat = 10 * time.Millisecond })
	l := s.listen(s.live("/"), "")
	s.mu.Lock()
	s.nodes = append(s.nodes, &rackmanager.NodeInventoryInfo{RackId: "rack-2", NodeId: "sw", Type: rackmanager.NodeType_SWITCH_GB200_NVIDIA})
	s.mu.Unlock()
	l.await(eventReload)
	_, more := l.next()
	require.False(t, more, "the page asks for another stream then")
}

func TestJobPagesAreLive(t *testing.T) {
	s := newSite(t)
	parent, child, other := update("p", "", running, 1), update("c", "tray-1", queued, 0), update("o", "tray-2", queued, 0)
	child.ParentJobId = "p"
	s.put(parent, child, other)
	require.Eventually(t, func() bool { return strings.Contains(s.page("/"), "2</b> waiting") }, 20*time.Second, 5*time.Millisecond)
	batch, single, list := s.listen(s.live("/jobs/p"), ""), s.listen(s.live("/jobs/o"), ""), s.listen(s.live("/jobs"), "")
	child.State = running
	s.put(child)
	e := batch.await(eventChanged)
	list.await(eventChanged)
	s.put(update("o", "tray-2", running, 3))
	require.NotEqual(t, e.id, single.await(eventChanged).id, "the change of another job must not be told")
}

func TestTheWatchIsResumed(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", running, 10))
	require.Eventually(t, func() bool { return strings.Contains(s.page("/"), "10 %") }, 20*time.Second, 5*time.Millisecond)
	before, _ := s.console.fleet.mark()
	l := s.listen(s.live("/"), "")

	cut := func(floor int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.floor = floor
		close(s.cut)
		s.cut = make(chan struct{})
	}
	cut(0)
	s.put(update("j1", "tray-1", running, 20))
	require.Eventually(t, func() bool { return strings.Contains(s.page("/"), "20 %") }, 20*time.Second, 5*time.Millisecond)
	after, _ := s.console.fleet.mark()
	require.Equal(t, before.life, after.life, "a watch that goes on keeps the versions")
	l.await(eventPatch)

	// A token that is too old begins another picture, and every page loads anew.
	cut(1 << 30)
	l.await(eventReload)
	require.Eventually(t, func() bool { return strings.Contains(s.page("/"), "20 %") }, 20*time.Second, 5*time.Millisecond)
	now, _ := s.console.fleet.mark()
	require.NotEqual(t, before.life, now.life)
}

func TestStreamsAreBoundedAndEnd(t *testing.T) {
	s := newSite(t, func(o *Options) { o.MaxStreams, o.Timing.Heartbeat = 1, 10*time.Millisecond })
	live := s.live("/jobs")
	l := s.listen(live, "")
	for e := (sent{event: eventChanged}); e.event != ""; { // the fleet may still be arriving; a quiet stream has heartbeats
		var ok bool
		e, ok = l.next()
		require.True(t, ok)
	}
	resp, _ := s.get(live)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "2", resp.Header.Get("Retry-After"))
	l.close()
	require.Eventually(t, func() bool { return len(s.console.streams) == 0 }, 20*time.Second, time.Millisecond, "a browser that leaves gives its place back")
	l = s.listen(live, "")
	s.console.EndStreams()
	for ok := true; ok; {
		_, ok = l.next()
	}
	require.NoError(t, l.lines.Err(), "the end is a clean one")
}

func TestAStreamHasAnEnd(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Timing.StreamLife = 20 * time.Millisecond })
	l := s.listen(s.live("/jobs"), "")
	for ok := true; ok; {
		_, ok = l.next()
	}
	require.NoError(t, l.lines.Err())
}
