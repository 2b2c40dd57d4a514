// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/job"
)

// maxStageMessage bounds a failed stage's message in bytes: it is part of every
// later event and checkpoint.
const maxStageMessage = 4 << 10

// reporter publishes a task's progress. Only the newest picture counts, so that
// a slow broker never holds up the work; a new stage is told at once, other
// changes at most once per interval.
type reporter struct {
	interval time.Duration
	// publish reports false when there is nothing to tell any more.
	publish func(context.Context) bool
	changed chan bool
	quit    chan struct{}
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

func startReporter(ctx context.Context, interval time.Duration, publish func(context.Context) bool) *reporter {
	ctx, stop := context.WithCancel(ctx)
	r := &reporter{
		interval: interval, publish: publish,
		changed: make(chan bool, 1), quit: make(chan struct{}), stop: stop,
	}
	r.wg.Go(func() { r.run(ctx) })
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
	var last time.Time
	for {
		var atOnce bool
		select {
		case <-ctx.Done():
			return
		case <-r.quit:
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
			case <-r.quit:
				timer.Stop()
				return
			case atOnce = <-r.changed:
			case <-timer.C:
				atOnce = true
			}
			timer.Stop()
		}
		select {
		case <-r.quit:
			return
		default:
		}
		last = time.Now()
		if !r.publish(ctx) {
			return
		}
	}
}

// close ends reporting after the picture that is under way, so that it does not
// arrive behind the outcome.
func (r *reporter) close() {
	close(r.quit)
	r.wg.Wait()
	r.stop()
}

// abort ends reporting at once: another owner's pictures outweigh these.
func (r *reporter) abort() {
	r.stop()
	r.wg.Wait()
}

// publishProgress publishes the job's picture of this moment.
func (t *Task) publishProgress(ctx context.Context) bool {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return false
	}
	t.n++
	e := t.pictureLocked(job.EventProgress)
	t.mu.Unlock()
	if err := t.f.events.PublishEvent(ctx, &e); err != nil && ctx.Err() == nil {
		t.log.Warn("progress not reported", "err", err)
	}
	return true
}

// Progress tells how far the stage is: percent from 0 to 100 and a text for people.
func (t *Task) Progress(percent int, description string) {
	description = t.mask.progress(description)
	t.mu.Lock()
	t.percent = uint32(min(max(percent, 0), 100))
	t.description = description
	t.mu.Unlock()
	t.reporter.note(false)
}

// Describe replaces the text for people and tells it at once.
func (t *Task) Describe(description string) {
	description = t.mask.progress(description)
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
	cmd := t.cmd
	return job.Event{
		Kind: kind, ID: t.id, RackID: cmd.GetTarget().GetRackId(), NodeID: cmd.GetTarget().GetNodeId(),
		Type: job.Type(cmd.GetType()), Family: cmd.GetFamily(),
		Epoch: t.ck.GetEpoch(), N: t.n, Attempt: t.ck.GetAttempt(), Agent: t.f.instance,
		State: job.StateRunning, Description: t.description, Percent: t.percent, Stages: t.timeline.Visible(),
		At: now(), StartedAt: timeOf(t.ck.GetStartedAt()), Deadline: timeOf(t.ck.GetDeadline()),
		CommandSeq: t.ck.GetCommandSeq(),
	}
}

// now is the wall clock as records keep it.
func now() time.Time { return time.Now().UTC().Round(0) }

func (t *Task) openTimeline(stages []Stage, next int) {
	names := make([]job.StageName, len(stages))
	for i, s := range stages {
		names[i] = job.StageName{Name: s.Name, Description: s.Description, SwitchesPower: s.SwitchesPower}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	started := timeOf(t.ck.GetStartedAt())
	fresh := job.NewTimeline(t.id, names, started)
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

// enter begins a stage. The returned context ends when the stage may be cut. limit
// is how long it may take until the job can stop; observe says that an earlier
// owner has announced the change.
func (t *Task) enter(ctx context.Context, s *Stage, limit time.Duration, observe bool) (context.Context, func()) {
	ctx, cut := context.WithCancelCause(ctx)
	stopDrain := func() bool { return true }
	if s.Resume != Once {
		stopDrain = context.AfterFunc(t.f.drained, func() { cut(ErrHandedOver) })
	}
	t.mu.Lock()
	t.stage, t.cutStage = s, cut
	t.description = cmp.Or(s.Text, s.Description)
	t.percent = 0 // that of the stage before would read as if this one were done
	t.timeline, _ = t.timeline.Start(now())
	if s.pinned() && (observe || s.Resume == Resumable) {
		t.pinLocked(limit)
	}
	if !observe && (s.Resume != Resumable || s.Interruptible) {
		t.ck.InFlight = "" // what was is over
	}
	asked := t.asked
	t.mu.Unlock()
	if asked != nil && s.Interruptible {
		cut(ErrCancelled)
	}
	t.log.Info("stage started", "op", s.Name)
	t.reporter.note(true)
	return ctx, func() {
		stopDrain()
		cut(context.Canceled)
	}
}

// pin notes that the stage under way cannot be cut from here on. Whoever has asked
// the job to stop is told at once.
func (t *Task) pin(s *Stage, limit time.Duration) {
	if !s.pinned() {
		return
	}
	t.mu.Lock()
	t.pinLocked(limit)
	asked := t.asked != nil
	t.mu.Unlock()
	t.reporter.note(asked)
}

// pinLocked keeps to the run deadline, behind which the job is cut in any case.
func (t *Task) pinLocked(limit time.Duration) {
	at := now()
	if d := t.ck.GetDeadline(); d != nil {
		if left := d.AsTime().Add(t.f.deadlineGrace).Sub(at); limit == 0 || left < limit {
			limit = max(left, 0)
		}
	}
	t.timeline, _ = t.timeline.Pin(at, limit)
}

// Within corrects the Limit of the stage under way, of which more is known by now.
func (t *Task) Within(limit time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.timeline.Current(); ok && s.Uninterruptible {
		t.pinLocked(limit)
	}
}

func (t *Task) completeCurrent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timeline, _ = t.timeline.Complete(now(), nil)
}

func (t *Task) skipCurrent(reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Alone, a reason reads as if it were said of the job.
	if stage, ok := t.timeline.Current(); ok {
		reason = "Stage " + stage.Name + " skipped: " + reason
	}
	t.timeline, _ = t.timeline.Skip(now(), nil)
	t.description = reason
}

// failCurrent marks the stage under way as the one the job failed in.
func (t *Task) failCurrent(message string) {
	message = t.mask.text(message)
	t.mu.Lock()
	defer t.mu.Unlock()
	at := now()
	if s, ok := t.timeline.Current(); !ok || s.Status != job.StageRunning {
		return
	}
	t.timeline, _ = t.timeline.Fail(at, message[:min(len(message), maxStageMessage)], nil)
	t.timeline = t.timeline.SkipRemaining(at)
}
