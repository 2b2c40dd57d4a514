// SPDX-License-Identifier: Apache-2.0

// Package stoptest stops a kind of job in the queue, in each of its stages and behind
// each change of its device, in both modes, through the jobs service; and checks that
// a job which reads terminal has left its device and its node alone.
package stoptest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/services/jobs"
)

const (
	// patience bounds every wait for something that must happen. A whole update of many
	// stages is waited for, on a machine that may be busy with other tests.
	patience = 3 * time.Minute
	// look is the pause between looks at the bus, which tells nobody when what a test
	// waits for has come true.
	look = 5 * time.Millisecond
)

// Request is one that reached a device, by whatever protocol.
type Request struct {
	At   time.Time
	Text string
}

// Bench is a job with its node. Nothing runs on it but the broker and the devices.
type Bench struct {
	// Conn is in the role of the API, and URL where it is connected to.
	Conn   *bus.Conn
	Family node.Family
	At     node.Ref
	// Start runs an agent until the test ends, and returns once it takes jobs. It is
	// nil where the jobs service does them itself, with the options of Service.
	Start   func(*failpoint.Points)
	Service func(*jobs.Options)
	// Connect returns a connection for the jobs service.
	Connect func(role string) *bus.Conn
	// Admit admits the job.
	Admit func() job.ID
	// Requests are those that the devices of the job have got.
	Requests func() []Request
	// Quiet is longer than any interval at which the workflow asks a device.
	Quiet time.Duration
	// Ended, where there is one, looks at what else the end of the job has to free.
	Ended func(job.ID)
}

// Kind is a kind of job, with its stages in their order.
type Kind struct {
	New    func(*testing.T) *Bench
	Stages []Stage
	// Changes are those of the device behind which the workflow passes
	// agent.FailAfterDeviceChange: what a job that is cut there tells to be in flight.
	Changes []string
}

// Stage is a stage, and what comes of a request to stop that the job hears of as the
// stage begins its work.
type Stage struct {
	Name string
	// End is the stage in which the job ends when it is asked to stop gracefully, and
	// Status how that one ends, 0 where it may be failed or completed.
	End    string
	Status job.StageStatus
	// State is how the job ends.
	State job.State
	// Told says that the job tells meanwhile that the stage cannot be cut.
	Told bool
	// Unlimited says that the workflow does not know yet how long the stage may take.
	Unlimited bool
	// Over says that by then nothing is left that a termination could cut either.
	Over bool
}

// Cut are stages that are left at once.
func Cut(names ...string) []Stage {
	var out []Stage
	for _, n := range names {
		out = append(out, Stage{Name: n, End: n, Status: job.StageFailed, State: job.StateCancelled})
	}
	return out
}

// Brief are stages without anything to wait for: they have ended, or are cut.
func Brief(names ...string) []Stage {
	out := Cut(names...)
	for i := range out {
		out[i].Status = 0
	}
	return out
}

// Pinned are stages that cannot be cut: the job stops behind the last of them.
func Pinned(names ...string) []Stage {
	var out []Stage
	for _, n := range names {
		out = append(out, Stage{
			Name: n, End: names[len(names)-1], Status: job.StageCompleted, State: job.StateCancelled, Told: true,
		})
	}
	return out
}

// Final are Pinned stages behind which nothing is left to be stopped.
func Final(names ...string) []Stage {
	out := Pinned(names...)
	for i := range out {
		out[i].State = job.StateCompleted
	}
	return out
}

// Done is the last stage, with nothing to do but to end.
func Done(name string) []Stage {
	return []Stage{{Name: name, End: name, Status: job.StageCompleted, State: job.StateCompleted, Over: true}}
}

// Depth is how much of the matrix is run.
type Depth uint8

// The depths. Whatever the depth, the job is run to its end, which shows that the
// table has all its stages.
const (
	// Sample is for a kind that differs from another one by its devices: one stage in
	// four is cancelled, and another one terminated.
	Sample Depth = iota
	// Each cancels in every stage, and terminates in one of four and behind each change.
	Each
	// All cancels and terminates everywhere.
	All
)

// every is how many stages a sample is taken of.
const every = 4

// Test runs the matrix.
func (k Kind) Test(t *testing.T, depth Depth) {
	t.Run("to its end", k.complete)
	t.Run("queued/cancel", func(t *testing.T) { k.queued(t, job.CancelGraceful) })
	if depth > Sample {
		t.Run("queued/terminate", func(t *testing.T) { k.queued(t, job.CancelTerminate) })
	}
	for i, s := range k.Stages {
		if depth >= Each || i%every == 1 {
			t.Run("cancel/"+s.Name, func(t *testing.T) { k.cancelled(t, s) })
		}
		if depth == All || i%every == every-1 {
			t.Run("terminate/"+s.Name, func(t *testing.T) { k.terminated(t, agent.FailInStage+s.Name, 1, &s) })
		}
	}
	for n, inFlight := range k.Changes {
		if depth == Sample && n < len(k.Changes)-1 {
			continue
		}
		t.Run("terminate/behind change "+strconv.Itoa(n+1), func(t *testing.T) {
			rec := k.terminated(t, agent.FailAfterDeviceChange, n+1, nil)
			require.Contains(t, rec.Failure.Message, inFlight)
		})
	}
}

// complete makes sure that the table has every stage that has work to do.
func (k Kind) complete(t *testing.T) {
	c := k.begin(t)
	c.serve(nil)
	id := c.Admit()
	rec := c.ended(id)
	require.Equal(t, job.StateCompleted, rec.State, "%+v", rec.Failure)
	var got, want []string
	for _, s := range rec.Stages {
		if s.Status == job.StageCompleted {
			got = append(got, s.Name)
		}
	}
	for _, s := range k.Stages {
		want = append(want, s.Name)
	}
	require.Equal(t, want, got)
	require.NotEmpty(t, c.Requests(), "the devices are watched")
	c.quiet(id)
}

// queued stops the job before anybody has claimed it.
func (k Kind) queued(t *testing.T, mode job.CancelMode) {
	c := k.begin(t)
	before := len(c.Requests())
	id := c.Admit()
	offer := func() {}
	if c.Start == nil {
		offer = c.hold()
		c.jobs(nil)
	}
	c.ask(id, mode)
	rec := c.ended(id)
	require.Equal(t, job.StateCancelled, rec.State, "%+v", rec.Failure)
	require.Equal(t, job.FailureCancelledByOperator, rec.Failure.FailureCode)
	require.Zero(t, rec.StartedAt, "nobody had it")
	require.Empty(t, rec.Stages)
	offer()
	c.quiet(id)
	if c.Start != nil {
		c.Start(nil)
		time.Sleep(c.Quiet) // an agent that looked for the job would have it by now
	}
	require.Len(t, c.Requests(), before, "the device was not touched")
}

// hold takes the command that is queued, so that the jobs service does not get it
// before it is offered again.
func (c *one) hold() (offer func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	commands, err := c.Conn.Commands(ctx, c.Family)
	require.NoError(c.t, err)
	var held *bus.Delivery
	require.NoError(c.t, commands.Fetch(ctx, 1, func(d *bus.Delivery) { held = d }))
	require.NotNil(c.t, held)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(look) {
			_ = held.Working() // a lost one is made good by the next
		}
	}()
	c.t.Cleanup(cancel)
	return func() {
		cancel()
		<-done
		require.NoError(c.t, held.Return(0))
	}
}

// cancelled asks the job to stop once a stage begins its work.
func (k Kind) cancelled(t *testing.T, s Stage) {
	c := k.begin(t)
	id := c.askAt(agent.FailInStage+s.Name, 1, job.CancelGraceful, func(id job.ID) {
		if s.Told {
			c.told(id, &s)
		}
	})
	rec := c.ended(id)
	require.Equal(t, s.State.String(), rec.State.String(), "%+v", rec.Failure)
	require.NotNil(t, rec.Cancel)
	if s.State == job.StateCancelled {
		require.Equal(t, job.FailureCancelledByOperator, rec.Failure.FailureCode)
	}
	last := lastStage(t, rec.Stages)
	require.Equal(t, s.End, last.Name, "the last stage that was begun: %+v", rec.Stages)
	if s.Status != 0 {
		require.Equal(t, s.Status.String(), last.Status.String(), last.Name)
	}
	c.quiet(id)
}

// terminated cuts the job at a failpoint; s is the stage that it is in, where known.
func (k Kind) terminated(t *testing.T, point string, n int, s *Stage) job.Record {
	c := k.begin(t)
	id := c.askAt(point, n, job.CancelTerminate, func(job.ID) {})
	rec := c.ended(id)
	if s != nil && s.Over {
		require.Equal(t, job.StateCompleted.String(), rec.State.String(), "%+v", rec.Failure)
		c.quiet(id)
		return rec
	}
	require.Equal(t, job.StateTerminated.String(), rec.State.String(), "%+v", rec.Failure)
	require.Equal(t, job.FailureTerminatedByOperator, rec.Failure.FailureCode)
	last := lastStage(t, rec.Stages)
	where := "terminated during stage " + last.Name
	if last.Status == job.StageCompleted {
		where = "terminated between stages" // its work was done before it noticed
	}
	require.Contains(t, rec.Failure.Message, where)
	require.Contains(t, rec.Failure.Message, job.StateUnknownText)
	if s != nil {
		require.Equal(t, s.Name, last.Name)
	}
	c.quiet(id)
	return rec
}

// lastStage is the last stage that was begun. A job that has ended has none running.
func lastStage(t *testing.T, stages []job.Stage) job.Stage {
	t.Helper()
	var last job.Stage
	for _, s := range stages {
		require.NotEqual(t, job.StageRunning.String(), s.Status.String(), s.Name)
		if s.Status == job.StageCompleted || s.Status == job.StageFailed {
			last = s
		}
	}
	return last
}

// one is one job that is stopped.
type one struct {
	*Bench
	t *testing.T
}

// begin starts a bench with the jobs service.
func (k Kind) begin(t *testing.T) *one {
	t.Helper()
	c := &one{k.New(t), t}
	if c.Start != nil {
		c.jobs(nil)
	}
	return c
}

// serve starts what does the job.
func (c *one) serve(points *failpoint.Points) {
	c.t.Helper()
	if c.Start == nil {
		c.jobs(points)
		return
	}
	c.Start(points)
}

// jobs runs the jobs service until the test ends.
func (c *one) jobs(points *failpoint.Points) {
	c.t.Helper()
	o := jobs.Options{
		Conn: c.Connect("jobs"), Balance: 300 * time.Millisecond, CommitInterval: look, Failpoints: points,
		DrainTimeout: 3 * time.Second,
	}
	if c.Service != nil {
		c.Service(&o)
	}
	s, err := jobs.New(o)
	require.NoError(c.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(c.t, err)
		case <-time.After(patience):
			c.t.Error("the jobs service does not stop")
		}
		o.Conn.Close()
	})
}

// askAt starts the job and asks it to stop the n-th time it reaches a failpoint, at
// which it is held until it has heard of that, and during what is done meanwhile.
func (c *one) askAt(point string, n int, mode job.CancelMode, meanwhile func(job.ID)) job.ID {
	c.t.Helper()
	points, reached, heard := &failpoint.Points{}, make(chan struct{}), make(chan struct{})
	ctx, release := context.WithCancel(c.t.Context())
	defer release()
	points.Arm(point, n, func() error {
		close(reached)
		<-ctx.Done()
		return nil
	})
	points.Arm(agent.FailAsked, 1, func() error {
		close(heard)
		return nil
	})
	c.serve(points)
	id := c.Admit()
	c.await(id, reached, "to reach "+point)
	c.ask(id, mode)
	c.await(id, heard, "to hear of the request")
	meanwhile(id)
	return id
}

// await waits for what happens before the job ends.
func (c *one) await(id job.ID, happens <-chan struct{}, what string) {
	c.t.Helper()
	select {
	case <-happens:
	case <-time.After(patience):
		rec, _, err := c.Conn.Record(c.t.Context(), id)
		c.t.Fatalf("still waiting for the job %s: %+v %+v %v", what, rec, rec.Failure, err)
	}
}

// ask asks the job to stop, as CancelJob does.
func (c *one) ask(id job.ID, mode job.CancelMode) {
	c.t.Helper()
	at := time.Now().UTC()
	require.NoError(c.t, c.Conn.PublishEvent(c.t.Context(), &job.Event{
		Kind: job.EventCancelRequested, ID: id, At: at,
		Cancel: &job.Cancel{Mode: mode, Reason: job.CancelReasonOperator, RequestedBy: "test", RequestedAt: at},
	}))
}

// record looks at the job's record until it is as wanted.
func (c *one) record(id job.ID, what string, wanted func(*job.Record) bool) job.Record {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(look) {
		rec, _, err := c.Conn.Record(c.t.Context(), id)
		require.NoError(c.t, err)
		if wanted(&rec) {
			return rec
		}
		if time.Now().After(end) {
			c.t.Fatalf("still waiting for the job to %s: %s %q %+v", what, rec.State, rec.Description, rec.Failure)
		}
	}
}

// told waits until the record says that the stage cannot be cut, and how long it may
// take.
func (c *one) told(id job.ID, stage *Stage) {
	c.t.Helper()
	var s job.Stage
	rec := c.record(id, "say that stage "+stage.Name+" cannot be cut", func(r *job.Record) bool {
		var ok bool
		s, ok = job.RunningStage(r.Stages)
		return r.Cancel != nil && ok && s.Name == stage.Name && s.Uninterruptible
	})
	require.Regexp(c.t, `^Stopping at the next safe point: .*\(stage `+stage.Name+`\b.* cannot be cut; it may take up to .*\d`, rec.Description)
	if !stage.Unlimited {
		require.Less(c.t, s.StopLimit, time.Until(rec.Deadline)*3/4, "not just the deadline of the job")
	}
}

// ended waits for the end of the job. In the same moment it holds its node no more.
func (c *one) ended(id job.ID) job.Record {
	c.t.Helper()
	rec := c.record(id, "end", func(r *job.Record) bool { return r.State.Terminal() })
	lock, err := c.Conn.Lock(c.t.Context(), c.At)
	require.NoError(c.t, err)
	require.Empty(c.t, lock.GetJobId(), "the node is free")
	require.Equal(c.t, id.String(), lock.GetLastJobId())
	if c.Ended != nil {
		c.Ended(id)
	}
	return rec
}

// quiet makes sure that nothing was told of the job, or asked of its device, after
// its end.
func (c *one) quiet(id job.ID) {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(look) {
		_, _, err := c.Conn.Command(c.t.Context(), c.Family, c.At)
		if errors.Is(err, bus.ErrNotFound) {
			break
		}
		require.NoError(c.t, err)
		require.True(c.t, time.Now().Before(end), "the command is still there")
	}
	time.Sleep(c.Quiet) // whoever still worked on the device would ask it by now
	events, _, err := c.Conn.NewestJobEvents(c.t.Context(), id, 0, 10_000, 16<<20)
	require.NoError(c.t, err)
	at := slices.IndexFunc(events, func(e bus.StoredEvent) bool { return e.Kind == job.EventFinished })
	require.Equal(c.t, len(events)-1, at, "the end is the last event")
	var late []string
	for _, r := range c.Requests() {
		if r.At.After(events[at].At) {
			late = append(late, r.Text)
		}
	}
	require.Empty(c.t, late, "requests behind the end")
}
