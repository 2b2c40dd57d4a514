// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

type (
	watchStream  = grpc.ServerStreamingServer[rackbusv1.WatchJobsResponse]
	watchRequest = rackbusv1.WatchJobsRequest
)

// course is a batch that is halfway when first read, and ended as soon as end is
// closed.
func course(l *lab, end <-chan struct{}) {
	l.on("GetJob", func(context.Context, proto.Message) (proto.Message, error) {
		select {
		case <-end:
			return ended(), nil
		default:
			return halfway(), nil
		}
	})
}

// tells sends jobs one by one, with tokens that count them.
func tells(stream watchStream, jobs ...*rackbusv1.Job) error {
	for i, j := range jobs {
		if err := stream.Send(&rackbusv1.WatchJobsResponse{Job: j, ResumeToken: string(rune('a' + i))}); err != nil {
			return err
		}
	}
	return nil
}

// isChildren says that a watch is that of the children.
func isChildren(req *rackbusv1.WatchJobsRequest) bool { return req.GetFilter().GetParentJobId() != "" }

func TestWatchPiped(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	end, shown := make(chan struct{}), make(chan struct{})
	course(l, end)
	l.watches(func(req *rackbusv1.WatchJobsRequest, stream watchStream) error {
		if isChildren(req) {
			// The snapshot tells what is known already; then two changes.
			err := tells(stream, halfway().GetChildren()[1], child(4, running, 10, "Uploading"), ended().GetChildren()[1])
			close(shown)
			<-stream.Context().Done()
			return err
		}
		if err := tells(stream, halfway().GetJob()); err != nil {
			return err
		}
		<-shown
		close(end)
		err := tells(stream, ended().GetJob())
		<-stream.Context().Done()
		return err
	})
	got := l.run("job", "watch", batchID)
	require.Equal(t, cli.ExitJob, got.code, got.stderr)
	// Two streams come in any order; each tells its own in order.
	require.Contains(t, got.stderr, "12:00:00 lab/tray-03 failed: the update task ended with an exception\n")
	require.Contains(t, got.stderr, "12:00:00 lab/tray-02 running 45%: Polling firmware task\n")
	require.Contains(t, got.stderr, "12:00:00 job running: 2/4 firmware updates ended\n")
	require.Equal(t, 1, strings.Count(got.stderr, "lab/tray-02 running"), "what has not changed is told once")
	require.Contains(t, got.stderr, "job "+batchID+" is partially failed: 1 of 4 firmware updates failed (CHILDREN_FAILED)")
	require.NotContains(t, got.stderr, "\x1b")
	golden(t, "show-job.table", got.stdout)

	filter := l.callsOf("WatchJobs")
	require.Len(t, filter, 2)
	for _, c := range filter {
		if req := c.req.(*rackbusv1.WatchJobsRequest); !isChildren(req) {
			require.Equal(t, []string{"firmware_update"}, req.GetFilter().GetTypes())
			require.True(t, req.GetFilter().GetTopLevelOnly())
		}
	}
}

// On a terminal there are bars, and the last picture stays.
func TestWatchTerminal(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	end, halfwayShown := make(chan struct{}), make(chan struct{})
	course(l, end)
	l.watches(func(req *rackbusv1.WatchJobsRequest, stream watchStream) error {
		if !isChildren(req) {
			<-halfwayShown
			close(end)
			if err := tells(stream, ended().GetJob()); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	})
	s := &screen{}
	first := ""
	seen := &watched{see: func(text string) {
		_, _ = s.Write([]byte(text))
		if first == "" && strings.Contains(s.text(), "tray-04") {
			first = s.text()
			close(halfwayShown)
		}
	}}
	got := l.runIn(func(env *cli.Env) {
		env.Redraw, env.Colours, env.Stderr = true, true, seen
		env.Size = func() (int, int) { return 90, 24 }
	}, "job", "watch", batchID)
	require.Equal(t, cli.ExitJob, got.code)
	golden(t, "watch-halfway.screen", first)
	golden(t, "watch-end.screen", s.text())
	require.Contains(t, seen.String(), "\x1b[32m", "bars have colours")
}

// A long list shows what matters, and never more lines than the terminal has.
func TestWatchManyChildren(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	var children []*rackbusv1.Job
	for n := 1; n <= 40; n++ {
		children = append(children, child(n, completed, 100, "Firmware updated"))
	}
	children[30] = child(31, jobFailed, 50, "Failed")
	children[20] = child(21, completed, 100, strings.Repeat("long ", 50))
	done := &rackbusv1.GetJobResponse{Job: batch(partially, "Ended", children...), Children: children}
	l.says("GetJob", done)
	s := &screen{}
	l.runIn(func(env *cli.Env) {
		env.Redraw, env.Stderr, env.Size = true, s, func() (int, int) { return 72, 12 }
	}, "job", "watch", batchID)
	lines := strings.Split(strings.TrimSpace(s.text()), "\n")
	require.LessOrEqual(t, len(lines)-1, 12, "with the reason below")
	require.Contains(t, s.text(), "tray-31")
	require.Contains(t, s.text(), "and 32 more")
	for _, line := range lines[:len(lines)-1] {
		require.Less(t, len([]rune(line)), 72, line)
	}
}

// A lost connection is taken up again with the last token; a token that is too old
// begins anew.
func TestWatchReconnects(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	j := alone()
	start := proto.Clone(j).(*rackbusv1.Job)
	start.State, start.StateDescription, start.Failure, start.FinishedAt = running, "Uploading", nil, nil
	var finished atomic.Bool
	l.on("GetJob", func(context.Context, proto.Message) (proto.Message, error) {
		if finished.Load() {
			return &rackbusv1.GetJobResponse{Job: j}, nil
		}
		return &rackbusv1.GetJobResponse{Job: start}, nil
	})
	var tokens []string
	l.watches(func(req *rackbusv1.WatchJobsRequest, stream watchStream) error {
		tokens = append(tokens, req.GetResumeToken())
		switch len(tokens) {
		case 1:
			if err := tells(stream, start, start); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "the server is shutting down; resume with the last token")
		case 2:
			return status.Error(codes.Unavailable, "not ready")
		case 3:
			return status.Error(codes.FailedPrecondition, "the token is too old")
		case 4:
			return status.Error(codes.ResourceExhausted, "the watcher is too slow")
		default:
			finished.Store(true)
			err := tells(stream, j)
			<-stream.Context().Done()
			return err
		}
	})
	got := l.run("job", "watch", j.GetJobId())
	require.Equal(t, cli.ExitJob, got.code, got.stderr)
	require.Equal(t, []string{"", "b", "b", "", ""}, tokens)
	require.Contains(t, got.stderr, "connection lost (the server is shutting down; resume with the last token); trying again")
	require.Contains(t, got.stderr, "(BMC_TASK_FAILED)\n  Compare the image's digest, then retry.\n")
}

func TestWatchGivesUp(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("GetJob", halfway())
	l.watches(func(*rackbusv1.WatchJobsRequest, watchStream) error { return status.Error(codes.Unavailable, "gone") })
	got := l.runIn(func(env *cli.Env) { env.Timing.GiveUp = 20 * time.Millisecond }, "job", "watch", batchID)
	require.Equal(t, cli.ExitUnreachable, got.code, got.stderr)
	require.Contains(t, got.stderr, l.addr)

	l.watches(func(*rackbusv1.WatchJobsRequest, watchStream) error {
		return status.Error(codes.PermissionDenied, "needs the role viewer")
	})
	got = l.run("job", "watch", batchID)
	require.Equal(t, cli.ExitRefused, got.code)
	require.Contains(t, got.stderr, "needs the role viewer")

	l.fails("GetJob", codes.NotFound, "job x not found")
	require.Equal(t, cli.ExitNotFound, l.run("job", "watch", "x").code)
}

// Any server of the published API can be watched.
func TestWatchPublishedAPI(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	polls := 0
	l.on("GetJobStatus", func(_ context.Context, req proto.Message) (proto.Message, error) {
		r := req.(*rackmanager.GetJobStatusRequest)
		if !r.GetIncludeChildJobStates() {
			return nil, status.Error(codes.InvalidArgument, "children are wanted")
		}
		polls++
		rack, node := "lab", "tray-01"
		parent := &rackmanager.JobStatus{
			JobId: "p", RackId: &rack, ChildJobIds: []string{"c"}, StateDescription: "0/1",
			ExecutionState: rackmanager.JobExecutionState_JOB_EXECUTION_STATE_RUNNING,
		}
		kid := &rackmanager.JobStatus{
			JobId: "c", ParentJobId: &parent.JobId, RackId: &rack, NodeId: &node, StateDescription: "Uploading",
			ExecutionState: rackmanager.JobExecutionState_JOB_EXECUTION_STATE_RUNNING,
		}
		switch {
		case polls == 2:
			return nil, status.Error(codes.Unavailable, "restarting")
		case polls > 3:
			for _, j := range []*rackmanager.JobStatus{parent, kid} {
				j.ExecutionState, j.ErrorMessage = rackmanager.JobExecutionState_JOB_EXECUTION_STATE_FAILED, "bad image"
				j.ErrorCode = rackmanager.JobError_JOB_ERROR_SERVER_ERROR
			}
		}
		return &rackmanager.GetJobStatusResponse{JobStates: []*rackmanager.JobStatus{parent, kid}}, nil
	})
	got := l.run("job", "watch", "p")
	require.Equal(t, cli.ExitJob, got.code, got.stderr)
	require.Contains(t, got.stderr, "lab/tray-01 running: Uploading")
	require.Contains(t, got.stderr, "job p is failed: bad image (JOB_ERROR_SERVER_ERROR)")
	require.Contains(t, got.stdout, "0/1 completed, 1 failed")
	got = l.run("job", "get", "p")
	require.Equal(t, cli.ExitOK, got.code, got.stderr)
	got = l.run("job", "list")
	require.Equal(t, cli.ExitUnsupported, got.code)
	require.Contains(t, got.stderr, "has no ListJobs")
}

// Ctrl-C leaves the job running, and says how to go on.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.says("GetJob", halfway())
	l.watches(func(_ *rackbusv1.WatchJobsRequest, stream watchStream) error {
		<-stream.Context().Done()
		return nil
	})
	signals := make(chan os.Signal, 1)
	seen := &watched{see: func(text string) {
		if strings.Contains(text, "job running") {
			signals <- os.Interrupt
		}
	}}
	got := l.runIn(func(env *cli.Env) {
		env.Stderr = seen
		env.Signals = func() (<-chan os.Signal, func()) { return signals, func() {} }
	}, "job", "watch", batchID)
	require.Equal(t, cli.ExitInterrupted, got.code)
	require.Contains(t, seen.String(), "rackctl job watch "+batchID)
	require.Contains(t, seen.String(), "rackctl job cancel "+batchID)
	require.Empty(t, l.callsOf("CancelJob"))
	require.Empty(t, got.stdout)
}

// The end of a job is told by the exit code.
func TestEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	for state, code := range map[rackbusv1.JobState]int{
		completed: cli.ExitOK, jobFailed: cli.ExitJob, rackbusv1.JobState_JOB_STATE_CANCELLED: cli.ExitJob,
		rackbusv1.JobState_JOB_STATE_SUPERSEDED: cli.ExitJob, rackbusv1.JobState_JOB_STATE_TIMED_OUT: cli.ExitJob,
		rackbusv1.JobState_JOB_STATE_TERMINATED: cli.ExitUnknown,
	} {
		l.says("GetJob", &rackbusv1.GetJobResponse{Job: child(1, state, 0, "x")})
		got := l.run("job", "watch", childID(1))
		require.Equal(t, code, got.code, state.String())
	}
	lost := child(1, jobFailed, 0, "x")
	lost.Failure = &rackbusv1.JobFailure{FailureCode: "OUTCOME_UNKNOWN", Message: "the answer was lost"}
	l.says("GetJob", &rackbusv1.GetJobResponse{Job: lost})
	require.Equal(t, cli.ExitUnknown, l.run("job", "watch", childID(1)).code)
}
