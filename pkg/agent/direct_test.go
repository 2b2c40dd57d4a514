// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func directOptions(h agent.Handler) agent.DirectOptions {
	return agent.DirectOptions{
		Command: &rackbusv1.JobCommand{
			Type: string(job.TypeFirmwareUpdate), Family: string(family),
			Target: &rackbusv1.NodeTarget{RackId: "bench", NodeId: "tray"},
		},
		Handler: h, Instance: "test", ProgressInterval: time.Millisecond,
		Credentials: map[node.EndpointKind]node.Credentials{
			node.EndpointBMC: {User: "root", Password: secret.New("planted-password")},
		},
	}
}

func TestDirectRun(t *testing.T) {
	t.Parallel()
	var events []job.Event
	o := directOptions(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		login, err := task.Credentials(node.EndpointBMC)
		if err != nil || login.User != "root" {
			return agent.Outcome{}, errors.Join(err, errors.New("no login"))
		}
		if _, err := task.Credentials(node.EndpointHost); !errors.Is(err, credentials.ErrNone) {
			return agent.Outcome{}, errors.New("a login that was not given")
		}
		err = task.RunStages(ctx, []agent.Stage{{
			Name: "one", Description: "First", Run: func(context.Context) error { task.Progress(40, "On its way"); return task.Guard().Check() },
		}, {
			Name: "two", Description: "Second", Run: func(context.Context) error { return nil },
		}})
		return agent.Outcome{Description: "Completed", ResultJSON: `{"a":1}`}, err
	})
	o.Events = func(e job.Event) { events = append(events, e) }
	o.StateFile = filepath.Join(t.TempDir(), "state.json")
	end, err := agent.RunDirect(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, job.StateCompleted, end.State)
	require.JSONEq(t, `{"a":1}`, end.ResultJSON)
	require.Equal(t, "tray", end.NodeID)
	require.Len(t, end.Stages, 2)
	require.Equal(t, job.EventStarted, events[0].Kind)
	require.Equal(t, end, last(events))
	left, err := os.ReadDir(filepath.Dir(o.StateFile))
	require.NoError(t, err)
	require.Empty(t, left, "a job that has ended leaves nothing behind")
}

func TestDirectFailures(t *testing.T) {
	t.Parallel()
	run := func(h agent.Handler) job.Event {
		end, err := agent.RunDirect(t.Context(), directOptions(h))
		require.NoError(t, err)
		return end
	}
	end := run(func(context.Context, *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, agent.Fail(job.FailureWriteProtected, "update", "it is write protected", nil)
	})
	require.Equal(t, job.StateFailed, end.State)
	require.Equal(t, job.FailureWriteProtected, end.Failure.FailureCode)
	end = run(func(context.Context, *agent.Task) (agent.Outcome, error) { panic("oops") })
	require.Equal(t, job.FailurePanic, end.Failure.FailureCode)
	end = run(func(_ context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.Secrets(&rackbusv1.DownloadSecrets{})
	})
	require.Contains(t, end.Failure.Message, credentials.ErrNone.Error())
	_, err := agent.RunDirect(t.Context(), agent.DirectOptions{})
	require.ErrorContains(t, err, "needs a command")
}

func TestDirectCancel(t *testing.T) {
	t.Parallel()
	for _, interruptible := range []bool{true, false} {
		cancel, first := make(chan struct{}), newGate()
		second := false
		o := directOptions(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
			return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
				Name: "one", Interruptible: interruptible, Run: func(ctx context.Context) error {
					if interruptible {
						close(cancel)
						return first.pass(ctx)
					}
					close(cancel)
					// The stage ends only after the request has arrived.
					for task.SafePoint(ctx) == nil {
						if err := task.Sleep(ctx, time.Millisecond); err != nil {
							return err
						}
					}
					return nil
				},
			}, {Name: "two", Run: func(context.Context) error { second = true; return nil }}})
		})
		o.Cancel = cancel
		end, err := agent.RunDirect(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, job.StateCancelled, end.State)
		require.False(t, second)
	}
}

// A Once stage has changed nothing before it was prepared, so that it is cut, or
// left behind its preparation.
func TestDirectCancelWhilePreparing(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(ctx context.Context, task *agent.Task) error{
		"cut": func(ctx context.Context, _ *agent.Task) error {
			<-ctx.Done()
			return agent.Fail(job.FailureBMCUnreachable, "prepare", "cut short", ctx.Err())
		},
		"left": func(ctx context.Context, task *agent.Task) error {
			// Under a context of its own: that of the stage is cut already.
			whole := context.WithoutCancel(ctx)
			for task.SafePoint(whole) == nil {
				if err := task.Sleep(whole, time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			cancel := make(chan struct{})
			sent := false
			o := directOptions(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
				return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
					Name: "send", Resume: agent.Once,
					Prepare: func(ctx context.Context) error { close(cancel); return prepare(ctx, task) },
					Run:     func(context.Context) error { sent = true; return nil },
					Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedUnknown, nil },
				}})
			})
			o.Cancel = cancel
			end, err := agent.RunDirect(t.Context(), o)
			require.NoError(t, err)
			require.Equal(t, job.StateCancelled, end.State)
			require.Equal(t, job.FailureCancelledByOperator, end.Failure.FailureCode)
			require.False(t, sent)
		})
	}
}

// hang is a handler whose Once stage has changed the device when it is cut.
type hang struct {
	sent, observed atomic.Int32
	reached        func()
	guard          agent.Guard
}

func (h *hang) run(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
	h.guard = task.Guard()
	err := task.RunStages(ctx, []agent.Stage{{
		Name: "send", Resume: agent.Once,
		Run: func(ctx context.Context) error {
			if err := task.Guard().Check(); err != nil {
				return err
			}
			h.sent.Add(1)
			gctx, leave := task.Guard().Context(ctx)
			defer leave()
			h.reached()
			<-gctx.Done()
			return context.Cause(gctx)
		},
		Observe: func(context.Context) (agent.Observation, error) {
			h.observed.Add(1)
			return agent.ObservedDone, nil
		},
	}})
	return agent.Outcome{Description: "Completed"}, err
}

func TestDirectCutWithoutState(t *testing.T) {
	t.Parallel()
	ctx, cut := context.WithCancel(t.Context())
	h := &hang{reached: cut}
	end, err := agent.RunDirect(ctx, directOptions(h.run))
	require.NoError(t, err)
	require.Equal(t, job.StateTerminated, end.State)
	require.Equal(t, job.FailureTerminatedByOperator, end.Failure.FailureCode)
	require.ErrorIs(t, h.guard.Check(), agent.ErrNotHeld, "nothing may be sent any more")
}

func TestDirectCutWithState(t *testing.T) {
	t.Parallel()
	ctx, cut := context.WithCancel(t.Context())
	h := &hang{reached: cut}
	o := directOptions(h.run)
	o.StateFile = filepath.Join(t.TempDir(), "state.json")
	_, err := agent.RunDirect(ctx, o)
	require.ErrorIs(t, err, agent.ErrInterrupted)
	raw, err := os.ReadFile(o.StateFile)
	require.NoError(t, err)
	require.NotContains(t, string(raw), "planted-password")
	require.NotContains(t, string(raw), "root")

	other := directOptions(h.run)
	other.StateFile = o.StateFile
	other.Command.Target.NodeId = "another tray"
	_, err = agent.RunDirect(t.Context(), other)
	require.ErrorIs(t, err, agent.ErrStateOfOther)

	end, err := agent.RunDirect(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, job.StateCompleted, end.State)
	require.EqualValues(t, 2, end.Epoch)
	require.EqualValues(t, 1, h.sent.Load(), "the device is looked at, and nothing is sent again")
	require.EqualValues(t, 1, h.observed.Load())
	require.NoFileExists(t, o.StateFile)
}

// A request to stop is not for the run that takes the job up again.
func TestDirectGoesOnAfterCancelAndCut(t *testing.T) {
	t.Parallel()
	ctx, cut := context.WithCancel(t.Context())
	cancel := make(chan struct{})
	resumed := false
	o := directOptions(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, task.RunStages(ctx, []agent.Stage{{
			Name: "work", Resume: agent.Resumable, Run: func(ctx context.Context) error {
				if task.Epoch() > 1 {
					resumed = true
					return task.SafePoint(ctx)
				}
				close(cancel)
				for task.SafePoint(ctx) == nil {
					if err := task.Sleep(ctx, time.Millisecond); err != nil {
						return err
					}
				}
				cut()
				<-ctx.Done()
				return context.Cause(ctx)
			},
		}})
	})
	o.Cancel, o.StateFile = cancel, filepath.Join(t.TempDir(), "state.json")
	_, err := agent.RunDirect(ctx, o)
	require.ErrorIs(t, err, agent.ErrInterrupted)
	o.Cancel = nil
	end, err := agent.RunDirect(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, job.StateCompleted, end.State)
	require.True(t, resumed)
}

// The process dies at each point of the runtime.
func TestDirectCrash(t *testing.T) {
	t.Parallel()
	for point, runs := range map[string]int32{agent.FailAfterIntent: 1, agent.FailAfterDone: 1, agent.FailBeforeAck: 1} {
		t.Run(point, func(t *testing.T) {
			points, err := failpoint.Parse(point + "=error@1")
			require.NoError(t, err)
			var sent atomic.Int32
			o := directOptions(func(ctx context.Context, task *agent.Task) (agent.Outcome, error) {
				return agent.Outcome{Description: "Completed"}, task.RunStages(ctx, []agent.Stage{{
					Name: "send", Resume: agent.Once, Run: func(context.Context) error { sent.Add(1); return nil },
					Observe: func(context.Context) (agent.Observation, error) { return agent.ObservedNotStarted, nil },
				}})
			})
			o.Failpoints, o.StateFile = points, filepath.Join(t.TempDir(), "state.json")
			end, err := agent.RunDirect(t.Context(), o)
			if errors.Is(err, agent.ErrInterrupted) {
				end, err = agent.RunDirect(t.Context(), o)
			}
			require.NoError(t, err)
			require.Equal(t, job.StateCompleted, end.State)
			require.Equal(t, runs, sent.Load())
		})
	}
}

func TestDirectStateFile(t *testing.T) {
	t.Parallel()
	started := newGate()
	dir := t.TempDir()
	o := directOptions(func(ctx context.Context, _ *agent.Task) (agent.Outcome, error) {
		return agent.Outcome{}, started.pass(ctx)
	})
	o.StateFile = filepath.Join(dir, "state.json")
	done := make(chan error, 1)
	go func() {
		_, err := agent.RunDirect(t.Context(), o)
		done <- err
	}()
	started.awaitReached(t)
	_, err := agent.RunDirect(t.Context(), o)
	require.ErrorIs(t, err, agent.ErrStateInUse)
	close(started.open)
	require.NoError(t, <-done)

	for content, want := range map[string]string{"{": "read state file", `{"version":7}`: "version 7"} {
		require.NoError(t, os.WriteFile(o.StateFile, []byte(content), 0o600))
		_, err = agent.RunDirect(t.Context(), o)
		require.ErrorContains(t, err, want)
	}
	o.StateFile = filepath.Join(dir, strings.Repeat("missing/", 2), "state.json")
	_, err = agent.RunDirect(t.Context(), o)
	require.ErrorIs(t, err, os.ErrNotExist)
}
