// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
)

// errTimeout says that a command ran longer than it may.
var errTimeout = errors.New("time limit passed")

// validate runs the validator. How it ends is kept in the state, so that the
// release follows in any case; only what takes the job from this agent, or cuts
// it, is an error.
func (r *run) validate(ctx context.Context) error {
	if err := r.ready(); err != nil {
		return r.ended(endBroken, "prepare the validation: "+err.Error())
	}
	if err := r.t.Guard().Check(); err != nil {
		return err
	}
	lock, err := r.lock(ctx, r.v.opts.ReleaseLimit)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return r.ended(endBroken, err.Error())
	}
	defer lock.Close()
	r.state.Begun = true
	if err := r.t.Save(ctx, r.state); err != nil {
		return err
	}
	args := r.v.opts.Command
	if r.op.GetConfigOverride() != "" {
		args = append(append([]string(nil), args...), r.v.opts.Override...)
	}
	held, release := r.t.Guard().Context(ctx)
	defer release()
	limited, cancel := context.WithTimeoutCause(held, r.v.opts.Limit, errTimeout)
	defer cancel()
	watched, cut := context.WithCancelCause(limited)
	defer cut(nil)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		r.watch(watched, cut)
	}()
	started := time.Now()
	status, outputs, err := r.command(watched, args, "validator", lock)
	r.state.Seconds = time.Since(started).Seconds()
	cut(nil)
	<-watching
	return r.judge(ctx, held, status, outputs, err)
}

// watch ends the validator when the job is asked to stop, and tells how long it
// runs.
func (r *run) watch(ctx context.Context, cut context.CancelCauseFunc) {
	started := time.Now()
	told := ""
	tick := time.NewTicker(r.v.opts.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A process that drains may end this stage.
		if err := r.t.SafePoint(ctx); errors.Is(err, agent.ErrCancelled) {
			cut(agent.ErrCancelled)
			return
		}
		// Once a minute is enough for people.
		text := fmt.Sprintf("The validator has been running for %s", time.Since(started).Truncate(time.Minute))
		if text != told {
			told = text
			r.t.Progress(0, text)
		}
	}
}

// judge puts the end of the validator into the state.
func (r *run) judge(ctx, held context.Context, status int, out *outputs, err error) error {
	if out != nil {
		r.state.Report = report(out.stdout.text(r.secrets), out.stdout.cut)
		r.state.Truncated = out.stdout.cut
		if r.state.Report == nil {
			r.state.Output = out.stdout.text(r.secrets)
		}
	}
	r.state.ExitStatus = status
	switch {
	case err == nil && status == 0:
		return r.ended(endPassed, "")
	case err == nil:
		return r.ended(endFailed, fmt.Sprintf("the validator ended with exit status %d: %s", status, lastWords(out, r)))
	case errors.Is(err, errTimeout):
		return r.ended(endTimeout, fmt.Sprintf("the validator did not end within %s", r.v.opts.Limit))
	case errors.Is(err, agent.ErrCancelled):
		return r.ended(endCancelled, "the validation was cancelled")
	case ctx.Err() != nil:
		// Cut, handed over, or past its deadline: the process is gone.
		r.state.Message = "the validator was killed: " + context.Cause(ctx).Error()
		return context.Cause(ctx)
	case held.Err() != nil:
		return fmt.Errorf("%w: %w", agent.ErrNotHeld, context.Cause(held))
	default:
		return r.ended(endBroken, err.Error())
	}
}

// lastWords is the end of what the validator said of its failure.
func lastWords(out *outputs, r *run) string {
	const keep = 512
	text := out.stderr.text(r.secrets)
	if text == "" {
		text = out.stdout.text(r.secrets)
	}
	if len(text) > keep {
		text = text[len(text)-keep:]
	}
	return oneLine(text)
}

func (r *run) ended(how end, message string) error {
	r.state.End, r.state.Message = how, message
	return r.t.Set(r.state)
}

// observe is asked when an earlier owner has begun the validation, or this one has
// lost its hold meanwhile. A validation is never begun again: what has become of
// it is told, and the node released.
func (r *run) observe(context.Context) (agent.Observation, error) {
	if r.state.End == "" {
		r.state.End, r.state.Message = endInterrupted, "the agent that ran the validator has stopped; the validation was not begun again"
		// The intent was recorded, so the validator may have been started.
		r.state.Begun = true
	}
	return agent.ObservedDone, r.t.Set(r.state)
}

// release runs the release command until it succeeds. The job is not over before.
func (r *run) release(ctx context.Context) error {
	if !r.needsRelease() {
		return agent.Skip("there is nothing to release")
	}
	for attempt := 1; ; attempt++ {
		err := r.releaseOnce(ctx, r.v.opts.ReleaseLimit)
		if err == nil {
			return nil
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, agent.ErrNotHeld):
			return err
		}
		r.t.Logger().Error("node not released", "op", "release", "attempt", attempt, "err", err)
		r.t.Progress(0, fmt.Sprintf("Releasing the node failed (attempt %d), it is tried again: %v", attempt, err))
		if err := r.t.Sleep(ctx, r.v.opts.ReleaseRetry); err != nil {
			return err
		}
	}
}

func (r *run) needsRelease() bool {
	return len(r.v.opts.Release) > 0 && r.state.Begun && !r.state.Released
}

func (r *run) releaseOnce(ctx context.Context, limit time.Duration) error {
	// A job that is terminated is still this agent's; one that has another owner is
	// released by that one.
	if err := r.t.Guard().Check(); err != nil && !errors.Is(err, agent.ErrTerminated) {
		return err
	}
	held, done := r.t.Guard().Context(ctx)
	defer done()
	err := r.tryRelease(held, limit)
	if held.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", agent.ErrNotHeld, context.Cause(held))
	}
	r.state.Released, r.state.Leak = err == nil, ""
	if err != nil {
		r.state.Leak = err.Error()
	}
	return errors.Join(err, r.t.Set(r.state))
}

func (r *run) tryRelease(ctx context.Context, limit time.Duration) error {
	if err := r.ready(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errTimeout)
	defer cancel()
	lock, err := r.lock(ctx, limit)
	if err != nil {
		return err
	}
	defer lock.Close()
	status, out, err := r.command(ctx, r.v.opts.Release, "release", lock)
	if err != nil {
		return fmt.Errorf("release command: %w", err)
	}
	if status != 0 {
		return fmt.Errorf("release command: exit status %d: %s", status, lastWords(out, r))
	}
	return nil
}

// lastRelease is that of a job which is cut: there is one try, and a bounded one.
func (r *run) lastRelease(ctx context.Context) {
	if !r.needsRelease() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.v.opts.LastReleaseLimit)
	defer cancel()
	// Whoever cannot write the checkpoint does not end the job either: the next
	// owner will, and releases the node.
	if err := r.t.Save(ctx, r.state); err != nil {
		r.t.Logger().Warn("node left to the next owner of the job", "op", "release", "err", err)
		return
	}
	if err := r.releaseOnce(ctx, r.v.opts.LastReleaseLimit); err != nil {
		r.t.Logger().Error("node not released, and the job ends", "op", "release", "err", err)
	}
}

// outputs are those of a command.
type outputs struct{ stdout, stderr *capture }

// command runs one of the configured commands.
func (r *run) command(ctx context.Context, args []string, name string, lock *os.File) (int, *outputs, error) {
	o := &r.v.opts
	stdout, err := newCapture(r.logDir, name+".out", o.MaxLog, o.MaxOutput)
	if err != nil {
		return -1, nil, err
	}
	defer stdout.close()
	stderr, err := newCapture(r.logDir, name+".err", o.MaxLog, o.MaxOutput)
	if err != nil {
		return -1, nil, err
	}
	defer stderr.close()
	c := &command{
		args: expand(args, r.values), env: r.env, dir: o.WorkDir, credentials: r.credentials.Bytes(), lock: lock,
		stdout: stdout, stderr: stderr, grace: o.KillGrace,
	}
	// Only one who waits for the end of the job has the time to be gentle.
	status, err := c.run(ctx, func() bool {
		cause := context.Cause(ctx)
		return errors.Is(cause, agent.ErrCancelled) || errors.Is(cause, errTimeout)
	})
	return status, &outputs{stdout, stderr}, err
}

// verdict makes the end of the validation that of the job.
func (r *run) verdict(context.Context) error {
	switch r.state.End {
	case endPassed:
		return nil
	case endCancelled:
		return agent.ErrCancelled
	case endInterrupted:
		return agent.Fail(job.FailureValidationInterrupted, "validation", r.state.Message, nil)
	case endFailed, endTimeout, endBroken:
		return agent.Fail(job.FailureValidationFailed, "validation", r.state.Message, nil)
	default:
		return agent.Fail(job.FailureInternal, "validation", "the validation has no result", nil)
	}
}

// result is the result_json of a validation.
type result struct {
	RackID     string          `json:"rack_id"`
	NodeID     string          `json:"node_id"`
	Status     string          `json:"status"`
	Validation end             `json:"validation,omitempty"`
	ExitStatus *int            `json:"exit_status,omitempty"`
	Seconds    float64         `json:"duration_seconds,omitempty"`
	Report     json.RawMessage `json:"report,omitempty"`
	Output     string          `json:"output,omitempty"`
	Truncated  bool            `json:"output_truncated,omitempty"`
	Message    string          `json:"message,omitempty"`
	LogDir     string          `json:"log_directory,omitempty"`
	// Released is missing when there is no release command or nothing was begun.
	Released *bool  `json:"released,omitempty"`
	Leak     string `json:"leak,omitempty"`
}

func (r *run) result(err error) string {
	if errors.Is(err, agent.ErrHandedOver) {
		return ""
	}
	target, s := r.t.Target(), &r.state
	out := result{
		RackID: target.GetRackId(), NodeID: target.GetNodeId(), Status: "completed", Validation: s.End,
		Seconds: s.Seconds, Report: s.Report, Output: s.Output, Truncated: s.Truncated, Message: s.Message,
	}
	if err != nil {
		out.Status = "failed"
	}
	if s.Begun {
		out.LogDir = r.logDir
		if s.End == endPassed || s.End == endFailed {
			out.ExitStatus = &s.ExitStatus
		}
		if len(r.v.opts.Release) > 0 {
			out.Released = &s.Released
			if !s.Released {
				out.Leak = "the node may still be taken: " + s.Leak
			}
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return job.FailureResult(job.NewFailure(job.FailureInternal, "the result cannot be written"))
	}
	return string(data)
}
