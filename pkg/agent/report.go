// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// reporter publishes a task's progress. Only the newest picture counts, so that
// a slow broker never holds up the work; a new stage is told at once, other
// changes at most once per interval.
type reporter struct {
	t        *Task
	interval time.Duration
	changed  chan bool
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

func startReporter(ctx context.Context, t *Task, interval time.Duration) *reporter {
	ctx, stop := context.WithCancel(ctx)
	r := &reporter{t: t, interval: interval, changed: make(chan bool, 1), stop: stop}
	r.wg.Add(1)
	go r.run(ctx)
	return r
}

// note says that the picture has changed.
func (r *reporter) note(atOnce bool) {
	for {
		select {
		case r.changed <- atOnce:
			return
		case waiting := <-r.changed:
			atOnce = atOnce || waiting
		}
	}
}

func (r *reporter) run(ctx context.Context) {
	defer r.wg.Done()
	var last time.Time
	for {
		var atOnce bool
		select {
		case <-ctx.Done():
			return
		case atOnce = <-r.changed:
		}
		for !atOnce {
			wait := r.interval - time.Since(last)
			if wait <= 0 {
				break
			}
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case atOnce = <-r.changed:
			case <-timer.C:
				atOnce = true
			}
			timer.Stop()
		}
		last = time.Now()
		e := r.t.picture(job.EventProgress)
		if err := r.t.a.opts.Conn.PublishEvent(ctx, &e); err != nil && ctx.Err() == nil {
			r.t.log.Warn("progress not reported", "err", err)
		}
	}
}

func (r *reporter) close() {
	r.stop()
	r.wg.Wait()
}

// Progress tells how far the job is: percent from 0 to 100 and a text for people.
func (t *Task) Progress(percent int, description string) {
	t.mu.Lock()
	t.percent = uint32(min(max(percent, 0), 100)) //nolint:gosec // bounded here
	t.description = description
	t.mu.Unlock()
	t.reporter.note(false)
}

// Describe replaces the text for people and tells it at once.
func (t *Task) Describe(description string) {
	t.mu.Lock()
	t.description = description
	t.mu.Unlock()
	t.reporter.note(true)
}

// picture is everything visible about the job now, as the next event.
func (t *Task) picture(kind job.EventKind) job.Event {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	return t.pictureLocked(kind)
}

func (t *Task) pictureLocked(kind job.EventKind) job.Event {
	cmd := t.delivery.Command
	e := job.Event{
		Kind: kind, ID: t.delivery.ID, RackID: cmd.GetTarget().GetRackId(), NodeID: cmd.GetTarget().GetNodeId(),
		Type: job.Type(cmd.GetType()), Family: cmd.GetFamily(),
		Epoch: t.ck.GetEpoch(), N: t.n, Attempt: t.ck.GetAttempt(), Agent: t.a.opts.Instance,
		State: job.StateRunning, Description: t.description, Percent: t.percent, Stages: t.timeline.Visible(),
		At: now(), StartedAt: t.ck.GetStartedAt().AsTime(), Deadline: t.ck.GetDeadline().AsTime(),
		CommandSeq: t.ck.GetCommandSeq(),
	}
	return e
}

// now is the wall clock as records keep it.
func now() time.Time { return time.Now().UTC().Round(0) }

func (t *Task) openTimeline(stages []Stage, next int) {
	names := make([]job.StageName, len(stages))
	for i, s := range stages {
		names[i] = job.StageName{Name: s.Name, Description: s.Description}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	started := t.ck.GetStartedAt().AsTime()
	fresh := job.NewTimeline(t.delivery.ID, names, started)
	if before, err := job.StagesFromProto(t.ck.GetStages()); err == nil && len(before) == len(stages) {
		// Stages behind the one that goes on are told again by this owner.
		for i := range before {
			if i < next {
				fresh.Stages[i].Stage = before[i]
			}
		}
	}
	fresh.Cursor = next
	t.timeline = fresh
}

// enter begins a stage.
func (t *Task) enter(s *Stage) {
	t.mu.Lock()
	t.stage = s
	t.description = s.Description
	t.timeline, _ = t.timeline.Start(now())
	t.mu.Unlock()
	t.log.Info("stage started", "op", s.Name)
	t.reporter.note(true)
}

func (t *Task) completeCurrent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timeline, _ = t.timeline.Complete(now(), nil)
}

func (t *Task) skipCurrent(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timeline, _ = t.timeline.Skip(now(), nil)
	t.description = reason
}

func (t *Task) failCurrent(message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := now()
	t.timeline, _ = t.timeline.Fail(at, message, nil)
	t.timeline = t.timeline.SkipRemaining(at)
}
