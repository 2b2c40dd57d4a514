// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// live shows the progress of a job and its children: on a terminal as bars that
// are redrawn in place, else in a line for each change worth one.
type live struct {
	env *Env
	w   io.Writer

	job      *rackbusv1.Job
	children map[string]*rackbusv1.Job
	// dirty says that the picture on the terminal is behind.
	dirty bool
	// lines is how many lines the picture on the terminal has.
	lines int
	// told is what was last said of each job in plain lines.
	told map[string]toldState
}

type toldState struct {
	state   rackbusv1.JobState
	text    string
	percent uint32
}

func newLive(env *Env) *live {
	return &live{env: env, w: env.Stderr, children: make(map[string]*rackbusv1.Job), told: make(map[string]toldState)}
}

// change takes in what a watch tells; the error is that of the watch.
func (v *live) change(c change) error {
	switch {
	case c.err != nil:
		return c.err
	case c.note != "":
		v.note(c.note)
	default:
		v.take(c.job, c.own)
	}
	return nil
}

// take takes in a change of the job (own) or of one of its children.
func (v *live) take(j *rackbusv1.Job, own bool) {
	if own {
		if newer(j, v.job) {
			v.job = j
		}
	} else if newer(j, v.children[j.GetJobId()]) {
		v.children[j.GetJobId()] = j
	}
	v.dirty = true
	if !v.env.Redraw {
		v.line(j, own)
	}
}

func (v *live) ended() bool { return v.job != nil && terminal(v.job.GetState()) }

// picture is what is known of the job.
func (v *live) picture() *rackbusv1.GetJobResponse {
	return &rackbusv1.GetJobResponse{Job: v.job, Children: byNode(v.children)}
}

func byNode(jobs map[string]*rackbusv1.Job) []*rackbusv1.Job {
	out := make([]*rackbusv1.Job, 0, len(jobs))
	for _, j := range jobs {
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *rackbusv1.Job) int {
		return cmp.Or(cmp.Compare(a.GetRackId(), b.GetRackId()), cmp.Compare(a.GetNodeId(), b.GetNodeId()), cmp.Compare(a.GetJobId(), b.GetJobId()))
	})
	return out
}

// line writes a change in plain text. Of children only their states are told:
// they are many.
func (v *live) line(j *rackbusv1.Job, own bool) {
	now := toldState{j.GetState(), cell(j.GetStateDescription()), j.GetPercent()}
	last, known := v.told[j.GetJobId()]
	if known && now.state == last.state && (!own || now.text == last.text && now.percent < last.percent+plainStep) {
		return
	}
	if known && terminal(last.state) {
		return
	}
	v.told[j.GetJobId()] = now
	who := "job"
	if !own {
		who = cell(place(j.GetRackId(), j.GetNodeId()))
	}
	text := now.text
	if f := j.GetFailure(); f != nil && f.GetMessage() != "" {
		text = cell(f.GetMessage())
	}
	percent := ""
	if now.percent > 0 && !terminal(now.state) {
		percent = fmt.Sprintf(" %d%%", now.percent)
	}
	fmt.Fprintf(v.w, "%s %s %s%s: %s\n", v.env.now().Local().Format("15:04:05"), who, stateWord(now.state), percent, text)
}

// note says something about the watch.
func (v *live) note(text string) {
	v.erase()
	fmt.Fprintf(v.w, "rackctl: %s\n", text)
	v.draw()
}

// drawChanged draws the picture when it has changed.
func (v *live) drawChanged() {
	if v.dirty {
		v.draw()
	}
}

// draw replaces the picture on the terminal. It is written in one piece, so that
// it does not flicker.
func (v *live) draw() {
	v.dirty = false
	if !v.env.Redraw || v.job == nil {
		return
	}
	lines := v.paint()
	var out strings.Builder
	out.WriteString(v.back())
	for _, l := range lines {
		out.WriteString(l + "\n")
	}
	v.lines = len(lines)
	_, _ = io.WriteString(v.w, out.String()) // nobody is there to be told
}

// back moves to the start of the picture and clears it.
func (v *live) back() string {
	if v.lines == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", v.lines)
}

func (v *live) erase() {
	_, _ = io.WriteString(v.w, v.back())
	v.lines = 0
}

// close leaves the last picture on the terminal.
func (v *live) close() {
	if v.dirty {
		v.draw()
	}
	v.lines = 0
}

// The lengths of a bar, of the shortest one, and of the states that most jobs have, in columns.
const (
	barWidth  = 20
	minBar    = 4
	wordWidth = len("completed")
)

// paint makes the lines of the picture.
func (v *live) paint() []string {
	width, height := v.env.size()
	j, colours := v.job, v.env.Colours
	title := cell(j.GetType()) + " " + cell(j.GetJobId())
	if j.GetName() != "" {
		title += " (" + cell(j.GetName()) + ")"
	}
	if t := took(v.env.now(), j); t != "" {
		title += "  " + t
	}
	lines := []string{paint(colours, bold, clip(title, width-1))}
	lines = append(lines, v.row(j, width, 0, progressText(j)))
	if len(v.children) == 0 {
		return lines
	}
	names := 0
	children := byNode(v.children)
	for _, c := range children {
		names = max(names, columnsOf(place(c.GetRackId(), c.GetNodeId())))
	}
	names = min(names, max(width/3, 8))
	room := max(height-len(lines)-2, 1)
	shown := pick(children, room)
	for _, c := range shown {
		lines = append(lines, v.row(c, width, names, progressText(c)))
	}
	if rest := len(children) - len(shown); rest > 0 {
		lines = append(lines, paint(colours, dim, fmt.Sprintf("  and %d more", rest)))
	}
	return lines
}

// row is one job with its bar. Without names it is that of the job itself.
func (v *live) row(j *rackbusv1.Job, width, names int, text string) string {
	colours, look := v.env.Colours, stateStyle(j.GetState())
	done := percentOf(j)
	head := ""
	if names > 0 {
		name := clip(cell(place(j.GetRackId(), j.GetNodeId())), names)
		head = "  " + name + strings.Repeat(" ", names-columnsOf(name)) + " "
	}
	word := fmt.Sprintf("%-*s", wordWidth, stateWord(j.GetState()))
	room := width - 1 - columnsOf(head) - len(" 100%") // a line that is wider would be two, and could not be replaced
	if room-len(gap+word) < minBar {
		word = ""
	}
	length := max(min(room-len(gap+word), barWidth), 0)
	filled := int(done) * length / 100
	bar := paint(colours, look, strings.Repeat("█", filled)) + paint(colours, dim, strings.Repeat("░", length-filled))
	line := fmt.Sprintf("%s%s %3d%%", head, bar, done)
	if word == "" {
		return line
	}
	if text = clip(text, room-length-len(gap+word+gap)); text != "" {
		text = gap + text
	}
	return line + gap + paint(colours, look, word) + text
}

// percentOf is how far a job is. That of a parent is known by its children, also
// where the server does not tell.
func percentOf(j *rackbusv1.Job) uint32 {
	if terminal(j.GetState()) && j.GetState() == rackbusv1.JobState_JOB_STATE_COMPLETED {
		return 100
	}
	c, total := j.GetChildren(), j.GetChildrenTotal()
	if j.GetPercent() > 0 || total == 0 || c == nil {
		return min(j.GetPercent(), 100)
	}
	return min((total-min(total, c.GetQueued()+c.GetRunning()))*100/total, 100)
}

// progressText is what a job does, or why it has ended.
func progressText(j *rackbusv1.Job) string {
	if f := j.GetFailure(); f != nil && f.GetMessage() != "" {
		return cell(f.GetMessage())
	}
	text := cell(j.GetStateDescription())
	if c := j.GetChildren(); c != nil && j.GetChildrenTotal() > 0 {
		return countsText(c, j.GetChildrenTotal()) + "; " + text
	}
	return text
}

// countsText sums up the children of a parent.
func countsText(c *rackbusv1.JobCounts, total uint32) string {
	text := fmt.Sprintf("%d/%d completed", c.GetCompleted(), total)
	for _, part := range []struct {
		n    uint32
		word string
	}{
		{c.GetFailed(), "failed"}, {c.GetTimedOut(), "timed out"}, {c.GetCancelled(), "cancelled"}, {c.GetTerminated(), "terminated"},
		{c.GetSuperseded(), "superseded"}, {c.GetRunning(), "running"}, {c.GetQueued(), "queued"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.word)
		}
	}
	return text
}

// rolloutText tells where a rollout stands.
func rolloutText(r *rackbusv1.Rollout) string {
	text := fmt.Sprintf("wave %d", r.GetWave())
	if r.GetWaves() > 0 {
		text += fmt.Sprintf(" of %d", r.GetWaves())
	}
	if r.GetState() == rackbusv1.RolloutState_ROLLOUT_STATE_RELEASED {
		text += ", every node was started"
	} else {
		text += " " + enumWord(r.GetState(), "ROLLOUT_STATE_")
	}
	if r.GetReason() != "" {
		text += ": " + cell(r.GetReason())
	}
	return text
}

// pick chooses the jobs that people want to see when there is no room for all:
// those that went wrong, then those at work, then the rest.
func pick(jobs []*rackbusv1.Job, room int) []*rackbusv1.Job {
	if len(jobs) <= room {
		return jobs
	}
	rank := func(j *rackbusv1.Job) int {
		switch s := j.GetState(); {
		case s == rackbusv1.JobState_JOB_STATE_RUNNING || s == rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED:
			return 1
		case s == rackbusv1.JobState_JOB_STATE_QUEUED:
			return 2
		case s == rackbusv1.JobState_JOB_STATE_COMPLETED:
			return 3
		default:
			return 0
		}
	}
	order := slices.Clone(jobs)
	slices.SortStableFunc(order, func(a, b *rackbusv1.Job) int { return cmp.Compare(rank(a), rank(b)) })
	chosen := make(map[string]bool, room)
	for _, j := range order[:room] {
		chosen[j.GetJobId()] = true
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(j *rackbusv1.Job) bool { return !chosen[j.GetJobId()] })
}
