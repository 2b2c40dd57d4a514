// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Names of the events that the script of a page knows.
const (
	// eventPatch brings elements that replace those of the same id.
	eventPatch = "patch"
	// eventChanged says that the page has changed and is to be fetched again.
	eventChanged = "changed"
	// eventReload says that the page is another one now, with another stream.
	eventReload = "reload"
)

// patch is one element of a page.
type patch struct {
	ID   string `json:"id"`
	HTML string `json:"html"`
}

// stream is one browser that listens.
type stream struct {
	c    *Console
	w    http.ResponseWriter
	rc   *http.ResponseController
	ctx  context.Context //nolint:containedctx // a stream lives as long as its request
	seen mark
}

// serveLive is a stream of server-sent events. step is called at once and after every
// change, and returns false when the stream is to end.
func (c *Console) serveLive(w http.ResponseWriter, r *http.Request, step func(*stream) (bool, error)) {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		w.Header().Set("Retry-After", strconv.Itoa(int(c.opts.Timing.StreamRetry.Seconds())))
		http.Error(w, "too many pages are live already", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.opts.Timing.StreamLife)
	defer cancel()
	s := &stream{c: c, w: w, rc: http.NewResponseController(w), ctx: ctx, seen: parseMark(r.URL.Query().Get("since"))}
	// After a lost connection the browser tells how far it was.
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		s.seen = parseMark(last)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not collect events
	// A deadline for the request, which has ended, would end an HTTP/1 connection.
	if s.rc.SetReadDeadline(time.Time{}) != nil || s.write(fmt.Sprintf("retry: %d\n\n", c.opts.Timing.StreamRetry.Milliseconds())) != nil {
		return
	}
	if err := s.loop(step); err != nil && ctx.Err() == nil {
		c.log.DebugContext(ctx, "console stream ended", "err", err)
	}
}

func (s *stream) loop(step func(*stream) (bool, error)) error {
	beat := time.NewTicker(s.c.opts.Timing.Heartbeat)
	defer beat.Stop()
	for {
		if more, err := step(s); err != nil || !more {
			return err
		}
		// However fast things change, a browser gets no more than one event per pause.
		if !s.pause() {
			return nil
		}
		// A step may have looked at a picture that was some moments old.
		if now, changed := s.c.fleet.mark(); now == s.seen {
			select {
			case <-changed:
				continue
			case <-s.ctx.Done():
				return nil
			case <-s.c.stopping:
				return nil
			case <-beat.C: // the inventory changes without telling, so look at it, too
			}
		} else {
			select {
			case <-beat.C:
			default:
				continue
			}
		}
		if err := s.write(": alive\n\n"); err != nil {
			return err
		}
	}
}

// send tells the browser of something, up to and including the mark.
func (s *stream) send(event string, upTo mark, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	s.seen = upTo
	return s.write(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", upTo, event, text))
}

func (s *stream) write(text string) error {
	// A browser that takes nothing must not hold a place.
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.c.opts.Timing.WriteLimit)); err != nil {
		return fmt.Errorf("bound write: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.rc.Flush()
}

// liveRacks keeps elevations, the rows of a rack, or the page of a node up to date.
func (c *Console) liveRacks(w http.ResponseWriter, r *http.Request, _ page) {
	q := r.URL.Query()
	c.serveLive(w, r, func(s *stream) (bool, error) {
		b, err := c.board(s.ctx)
		if err != nil {
			return false, err
		}
		if s.seen.life != b.mark.life || q.Get("inventory") != strconv.FormatUint(b.digest, 36) {
			return false, s.send(eventReload, b.mark, "")
		}
		return c.stepRacks(s, b, q)
	})
}

func (c *Console) stepRacks(s *stream, b *board, q url.Values) (bool, error) {
	shown, node, show := q["rack"], q.Get("node"), q.Get("show")
	var patches []patch
	var faults error
	add := func(name, id string, data any) {
		var html bytes.Buffer
		if err := c.templates.ExecuteTemplate(&html, name, data); err != nil {
			faults = fmt.Errorf("render %s: %w", name, err)
		}
		patches = append(patches, patch{id, html.String()})
	}
	moved := false
	for _, rack := range b.racks {
		onPage := slices.Contains(shown, rack.ID)
		if rack.moved > s.seen.version {
			moved = true
			if show == showCells {
				add("tile", rack.TileID, rack)
			}
			if onPage && show != showPage {
				add("rackcounts", rack.HeadID, rack)
			}
		}
		if !onPage {
			continue
		}
		for _, cell := range rack.Cells {
			switch {
			case cell.version <= s.seen.version:
			case show == showPage && cell.NodeID == node:
				return true, s.send(eventChanged, b.mark, "")
			case show == showCells:
				add("cell", cell.ElementID, cell)
			case show == showRows:
				add("row", cell.RowID, cell)
			}
		}
	}
	if moved && show == showCells {
		add("fleetcounts", "fleet", fleetView(b.racks))
	}
	if faults != nil || len(patches) == 0 {
		s.seen = b.mark
		return faults == nil, faults
	}
	return true, s.send(eventPatch, b.mark, patches)
}

// liveJobs tells that the list of jobs has changed.
func (c *Console) liveJobs(w http.ResponseWriter, r *http.Request, _ page) {
	c.serveLive(w, r, func(s *stream) (bool, error) { return c.stepPage(s, func(uint64) bool { return true }) })
}

// liveJob tells that a job, or one of its children, has changed.
func (c *Console) liveJob(w http.ResponseWriter, r *http.Request, _ page) {
	id := r.PathValue("job")
	c.serveLive(w, r, func(s *stream) (bool, error) {
		return c.stepPage(s, func(version uint64) bool { return c.fleet.jobChanged(id, version) })
	})
}

func (c *Console) stepPage(s *stream, concerns func(version uint64) bool) (bool, error) {
	now, _ := c.fleet.mark()
	switch {
	case s.seen == now:
		return true, nil
	case s.seen.life != now.life || concerns(s.seen.version):
		return true, s.send(eventChanged, now, "")
	}
	s.seen = now
	return true, nil
}

// pause waits before the next event, and returns false when the stream has to end.
func (s *stream) pause() bool {
	timer := time.NewTimer(s.c.opts.Timing.PatchInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
	case <-s.c.stopping:
	}
	return false
}
