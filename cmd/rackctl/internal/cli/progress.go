// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"sync"

	"github.com/rackbus/rackbus/pkg/job"
)

// plainStep is the least change of the percentage that is worth a line of its own.
const plainStep = 10

// progress shows the course of a job: on a terminal in one line that is redrawn,
// else in lines as things change.
type progress struct {
	w      io.Writer
	redraw bool

	mu sync.Mutex
	// open says that the line on the terminal is not closed yet.
	open    bool
	text    string
	percent uint32
}

func newProgress(env *Env) *progress { return &progress{w: env.Stderr, redraw: env.Redraw} }

// event shows one event.
func (p *progress) event(e job.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.Kind == job.EventFinished || e.Description == "" {
		return
	}
	text := cell(e.Description)
	line := text
	if e.Percent > 0 {
		line = fmt.Sprintf("[%3d%%] %s", e.Percent, text)
	}
	switch {
	case p.redraw:
		if text != p.text {
			p.closeLine() // what is over stays readable
		}
		fmt.Fprintf(p.w, "\r\x1b[K%s", line)
		p.open = true
	case text == p.text && e.Percent < p.percent+plainStep:
		return
	default:
		fmt.Fprintln(p.w, line)
	}
	p.text, p.percent = text, e.Percent
}

// note says something in a line of its own.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLine()
	fmt.Fprintf(p.w, "rackctl: %s\n", text)
}

// Write puts the lines of a log between those of the progress.
func (p *progress) Write(lines []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLine()
	return p.w.Write(lines)
}

// done closes the line.
func (p *progress) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeLine()
}

func (p *progress) closeLine() {
	if p.open {
		fmt.Fprintln(p.w)
		p.open = false
	}
}
