// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// changeBuffer is how many changes may wait while a picture is drawn.
const changeBuffer = 256

// await shows the progress of a job until it has ended, and returns it whole. An
// interrupt leaves the job alone.
func (p *program) await(ctx context.Context, s *server, id string) (*rackbusv1.GetJobResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	timing := p.env.Timing.withDefaults()
	changes := make(chan change, changeBuffer)
	w := &watcher{s: s, timing: timing, id: id, out: changes}
	go func() {
		defer close(changes)
		w.run(ctx)
	}()
	defer func() {
		cancel()
		for range changes { // until the watcher has gone
		}
	}()
	signals, unsubscribe := p.env.Signals()
	defer unsubscribe()

	view := newLive(p.env)
	defer view.close()
	draw := time.NewTicker(timing.Redraw)
	defer draw.Stop()
	clock := time.NewTicker(timing.Clock)
	defer clock.Stop()
	for {
		select {
		case c, more := <-changes:
			if !more {
				return nil, failedf("the server no longer tells of job %s", id)
			}
			if err := view.change(c); err != nil {
				return nil, err
			}
			if view.ended() {
				return p.whole(ctx, s, id, view)
			}
		case <-draw.C:
			view.drawChanged()
		case <-clock.C:
			view.draw()
		case <-signals:
			view.close()
			return nil, &exitError{ExitInterrupted, fmt.Errorf("no longer waiting; job %s goes on\n"+
				"  watch it:  rackctl job watch %s\n  cancel it: rackctl job cancel %s", id, id, id)}
		}
	}
}

// whole reads the ended job with its children and results.
func (p *program) whole(ctx context.Context, s *server, id string, view *live) (*rackbusv1.GetJobResponse, error) {
	resp, err := s.job(ctx, id)
	if err == nil && terminal(resp.GetJob().GetState()) {
		for _, child := range resp.GetChildren() {
			view.take(child, false) // the end of the parent may have come first
		}
		return resp, nil
	}
	if err != nil && !passing(err) {
		return nil, err
	}
	return view.picture(), nil // it is out of reach again, or behind; the end is known
}

// job reads a job with its children from any server of the published API.
func (s *server) job(ctx context.Context, id string) (*rackbusv1.GetJobResponse, error) {
	resp, err := s.jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: id, IncludeChildren: true})
	if !unimplemented(err) {
		return resp, err
	}
	jobs, err := s.published(ctx, id)
	if err != nil {
		return nil, err
	}
	return &rackbusv1.GetJobResponse{Job: jobs[0], Children: jobs[1:]}, nil
}

// newer says that a picture of a job is not older than another one: two streams
// and a read may cross.
func newer(next, last *rackbusv1.Job) bool {
	if last == nil {
		return true
	}
	if terminal(last.GetState()) {
		return false // the end never changes
	}
	return !before(next.GetUpdatedAt(), last.GetUpdatedAt())
}

func before(a, b *timestamppb.Timestamp) bool {
	return a != nil && b != nil && a.AsTime().Before(b.AsTime())
}
