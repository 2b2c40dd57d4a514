// SPDX-License-Identifier: Apache-2.0

package reqlog

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Options configure a Log.
type Options struct {
	// Writer receives one JSON line per request; nil writes none.
	Writer io.Writer
	// FlushAfter bounds how long a line stays in memory; default 100 ms.
	FlushAfter time.Duration
	// Keep is how many reads and how many writes are kept in memory for queries; default 16384 of each.
	// Negative keeps none.
	Keep int
}

// Log keeps the latest entries in memory and writes all of them out. It is safe for concurrent use.
type Log struct {
	opts Options

	mu      sync.Mutex
	seq     uint64
	reads   ring
	writes  ring
	changed chan struct{}
	// answering are the tickets of requests whose answer is under way to the client.
	answering map[uint64]struct{}
	tickets   uint64
	inFlight  map[uint64]Entry
	out       *bufio.Writer
	flush     *time.Timer
	dirty     bool
	closed    bool
	failure   error
}

// New returns a log.
func New(opts Options) *Log {
	opts.FlushAfter = cmp.Or(opts.FlushAfter, 100*time.Millisecond)
	opts.Keep = cmp.Or(opts.Keep, 16384)
	l := &Log{opts: opts, changed: make(chan struct{}), answering: map[uint64]struct{}{}, inFlight: map[uint64]Entry{}}
	if opts.Writer != nil {
		l.out = bufio.NewWriterSize(opts.Writer, 64<<10)
	}
	return l
}

// Add records an entry and gives it its Seq.
func (l *Log) Add(e Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	e.Seq = l.seq
	// Polling must not push the few writes out of the memory, so each kind has a ring of its own.
	kept := &l.reads
	if e.Write() {
		kept = &l.writes
	}
	kept.add(e, l.opts.Keep)
	l.notify()
	l.writeLine(e)
}

func (l *Log) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// Begin notes a request in progress; ended has to be called after Add.
func (l *Log) Begin(e Entry) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets++
	ticket := l.tickets
	l.inFlight[ticket] = e
	l.notify()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.inFlight, ticket)
		l.notify()
	}
}

// WaitInFlight returns a matching request that is in progress, as soon as there is one, or the context's error. What
// shows only later, such as the upload's details, cannot be matched yet.
func (l *Log) WaitInFlight(ctx context.Context, f Filter) (Entry, error) {
	f.After, f.Uploads = 0, false
	match := f.matcher()
	for {
		l.mu.Lock()
		for _, e := range l.inFlight {
			e.Seq = 1 // has none yet, and must not be taken for one before After
			if match(&e) {
				e.Seq = 0
				l.mu.Unlock()
				return e, nil
			}
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return Entry{}, fmt.Errorf("wait for a request in progress: %w", ctx.Err())
		}
	}
}

// Answering says that a client is about to see the effect of a request that is not recorded yet; done says that it
// now is. Select waits in between, so that a client that has its answer finds its request.
func (l *Log) Answering() (done func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tickets++
	ticket := l.tickets
	l.answering[ticket] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.answering, ticket)
		l.notify()
	}
}

// awaitAnswers waits for the requests that were being answered when it was called.
func (l *Log) awaitAnswers() {
	l.mu.Lock()
	last := l.tickets
	for l.behind(last) {
		changed := l.changed
		l.mu.Unlock()
		<-changed
		l.mu.Lock()
	}
	l.mu.Unlock()
}

func (l *Log) behind(last uint64) bool {
	for ticket := range l.answering {
		if ticket <= last {
			return true
		}
	}
	return false
}

func (l *Log) writeLine(e Entry) {
	if l.out == nil || l.closed {
		return
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if err != nil && l.failure == nil {
		l.failure = fmt.Errorf("write request log: %w", err)
	}
	if !l.dirty {
		l.dirty = true
		l.flush = time.AfterFunc(l.opts.FlushAfter, l.flushNow)
	}
}

func (l *Log) flushNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.flushLocked()
}

func (l *Log) flushLocked() {
	l.dirty = false
	if err := l.out.Flush(); err != nil && l.failure == nil {
		l.failure = fmt.Errorf("flush request log: %w", err)
	}
}

// Close writes out what is buffered and returns the first write error. Later entries are kept in memory only.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.failure
	}
	l.closed = true
	if l.flush != nil {
		l.flush.Stop()
	}
	if l.out != nil {
		l.flushLocked()
	}
	return l.failure
}

// Select returns the kept entries that match, in the order in which they ended. A request whose answer the client
// has is among them.
func (l *Log) Select(f Filter) []Entry {
	l.awaitAnswers()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.selectLocked(f)
}

func (l *Log) selectLocked(f Filter) []Entry {
	match := f.matcher()
	out := l.writes.collect(nil, match)
	if !f.Writes {
		out = l.reads.collect(out, match)
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

// Wait returns as soon as at least n kept entries match, or with the context's error.
func (l *Log) Wait(ctx context.Context, f Filter, n int) ([]Entry, error) {
	for {
		l.mu.Lock()
		found, changed := l.selectLocked(f), l.changed
		l.mu.Unlock()
		if len(found) >= n {
			return found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return found, fmt.Errorf("wait for %d requests, have %d: %w", n, len(found), ctx.Err())
		}
	}
}

// ring keeps the latest entries; it grows to its limit and then overwrites the oldest.
type ring struct {
	entries []Entry
	next    int
}

func (r *ring) add(e Entry, limit int) {
	switch {
	case limit < 0:
	case len(r.entries) < limit:
		r.entries = append(r.entries, e)
	default:
		r.entries[r.next] = e
		r.next = (r.next + 1) % limit
	}
}

func (r *ring) collect(out []Entry, match func(*Entry) bool) []Entry {
	for i := range r.entries {
		if match(&r.entries[i]) {
			out = append(out, r.entries[i])
		}
	}
	return out
}
