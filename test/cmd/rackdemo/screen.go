// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// redraw is how often the board of jobs is drawn anew.
const redraw = 200 * time.Millisecond

// barWidth is the width of a progress bar, textWidth of a job's text.
const (
	barWidth  = 20
	textWidth = 64
)

// screen prints for people; on a terminal the board of jobs is drawn in place.
type screen struct {
	w    io.Writer
	live bool
}

func newScreen(f *os.File) *screen {
	info, err := f.Stat()
	return &screen{w: f, live: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

func (s *screen) title(format string, args ...any) {
	fmt.Fprintf(s.w, "\n== "+format+"\n", args...)
}

func (s *screen) step(format string, args ...any)  { fmt.Fprintf(s.w, "   "+format+"\n", args...) }
func (s *screen) note(format string, args ...any)  { fmt.Fprintf(s.w, " ! "+format+"\n", args...) }
func (s *screen) plain(format string, args ...any) { fmt.Fprintf(s.w, format+"\n", args...) }

// board is the newest state of every job.
type board struct {
	out *screen

	mu    sync.Mutex
	jobs  map[string]*rackbusv1.Job
	drawn int
}

func newBoard(out *screen) *board { return &board{out: out, jobs: map[string]*rackbusv1.Job{}} }

func (b *board) put(j *rackbusv1.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.jobs[j.GetJobId()]
	b.jobs[j.GetJobId()] = j
	if !b.out.live && (before == nil || before.GetState() != j.GetState()) {
		b.out.step("%s", line(j))
	}
}

// ended reports whether the given jobs, and all others seen, are terminal.
func (b *board) ended(ids ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if b.jobs[id] == nil {
			return false
		}
	}
	for _, j := range b.jobs {
		if j.GetState() < rackbusv1.JobState_JOB_STATE_COMPLETED {
			return false
		}
	}
	return true
}

func (b *board) draw(ctx context.Context) {
	if !b.out.live {
		return
	}
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		b.drawOnce()
		select {
		case <-ctx.Done():
			b.drawOnce()
			return
		case <-tick.C:
		}
	}
}

func (b *board) drawOnce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	jobs := make([]*rackbusv1.Job, 0, len(b.jobs))
	for _, j := range b.jobs {
		jobs = append(jobs, j)
	}
	sort.Slice(jobs, func(i, k int) bool {
		if jobs[i].GetNodeId() != jobs[k].GetNodeId() {
			return jobs[i].GetNodeId() < jobs[k].GetNodeId()
		}
		return jobs[i].GetJobId() < jobs[k].GetJobId()
	})
	var text strings.Builder
	if b.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA", b.drawn)
	}
	for _, j := range jobs {
		fmt.Fprintf(&text, "\x1b[2K   %s\n", line(j))
	}
	b.drawn = len(jobs)
	fmt.Fprint(b.out.w, text.String())
}

func line(j *rackbusv1.Job) string {
	name := j.GetNodeId()
	if name == "" {
		name = "batch"
	}
	state := strings.ToLower(strings.TrimPrefix(j.GetState().String(), "JOB_STATE_"))
	text := j.GetStateDescription()
	if m := j.GetFailure().GetMessage(); m != "" && j.GetState() >= rackbusv1.JobState_JOB_STATE_COMPLETED {
		text = m
	}
	if len(text) > textWidth {
		text = text[:textWidth-1] + "…"
	}
	done := int(j.GetPercent()) * barWidth / 100
	return fmt.Sprintf("%-13s [%s%s] %-9s %s", name, strings.Repeat("#", done), strings.Repeat(".", barWidth-done), state, text)
}
