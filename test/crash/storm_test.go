// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

var cancels = flag.Int("crash.cancels", 80, "requests to stop a job in TestCancelStorm")

const (
	graceful  = rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL
	terminate = rackbusv1.CancelMode_CANCEL_MODE_TERMINATE
)

// onBusy is the metadata with which jobs park behind those that hold their nodes.
const onBusy = "rackbus-on-busy"

// stopPlans are what callers may ask of one job, one request after the other.
func stopPlans() [][]rackbusv1.CancelMode {
	return [][]rackbusv1.CancelMode{
		{graceful}, {graceful}, {terminate}, {terminate}, {graceful, graceful}, {graceful, terminate}, {terminate, terminate}, {terminate, graceful},
	}
}

// latestRequest is how long after its admission a job is asked to stop, at most: about as long as an update takes.
const latestRequest = 5 * time.Second

// TestCancelStorm asks jobs to stop at random moments, while processes are killed and frozen: batches and their
// children, parked, queued and running ones, gracefully, by force, twice, and firmer the second time.
func TestCancelStorm(t *testing.T) {
	t.Parallel()
	s := newStopping(t, *cancels)
	bound := 5*time.Minute + time.Duration(s.n)*time.Second
	ctx, cancel := context.WithTimeoutCause(t.Context(), bound, fmt.Errorf("the run took longer than %s", bound))
	defer cancel()
	created, err := s.caller.clients[0].CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: s.c.NodeSet(s.rack)})
	require.NoError(t, err)
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, created.GetResponse().GetStatus())
	raging, calm := context.WithCancel(ctx)
	defer calm()
	var wg sync.WaitGroup
	wg.Go(func() { s.chaos.run(raging) })
	s.callAll(ctx)
	calm()
	wg.Wait()
	settle(ctx, s.c, s.violated)
	s.report(ctx)
	require.NoError(t, context.Cause(ctx))
}

// stopping is one run: callers update nodes and stop most of what they have begun.
type stopping struct {
	t       *testing.T
	c       *cluster.Cluster
	rack    *sim.Rack
	n       int
	chaos   *chaos
	caller  *caller
	retries atomic.Int64
	files   atomic.Int64
	// taken and late count requests that were accepted, and that came behind the end of the job.
	taken, late atomic.Int64
	began       time.Time

	mu         sync.Mutex
	jobs       map[string]*stopped
	violations []string
}

// stopped is a job and what was asked of it.
type stopped struct {
	id, node, parent, version string
	// asked are the modes asked of the job itself.
	asked []rackbusv1.CancelMode
	// last is the job as it ended, and seen when a caller read so.
	last *rackbusv1.Job
	seen time.Time
}

func newStopping(t *testing.T, n int) *stopping {
	nodes := min(max(n/4, 16), 64)
	c := cluster.Start(t, cluster.Options{
		Replicas: 2,
		Racks: []sim.Options{{
			RackID: "storm", Compute: nodes, Seed: *seed, KeepRequests: 1 << 20,
			Timing: bmc.Timing{Task: 800 * time.Millisecond, BMCOutage: 200 * time.Millisecond},
		}},
	})
	s := &stopping{t: t, c: c, rack: c.Racks[0], n: n, began: time.Now(), jobs: map[string]*stopped{}}
	s.chaos = newChaos(t, c, *seed, 1)
	s.caller = &caller{clients: []*cluster.Client{c.Client(0), c.Client(1)}, retries: &s.retries}
	return s
}

func (s *stopping) violated(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violations = append(s.violations, fmt.Sprintf(format, args...))
}

// callAll lets every caller work on nodes of its own until enough requests were accepted.
func (s *stopping) callAll(ctx context.Context) {
	mine := make([][]string, callers)
	for i, d := range s.rack.Devices() {
		mine[i%callers] = append(mine[i%callers], d.ID())
	}
	var wg sync.WaitGroup
	for i, nodes := range mine {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(*seed, uint64(i)+1))
			for ctx.Err() == nil && s.taken.Load() < int64(s.n) {
				s.round(ctx, random, nodes)
			}
		})
	}
	wg.Wait()
}

// round gives the nodes of a caller a job each, and some of them a second one that parks behind it, and stops most of
// them. It returns when all of them have ended: the nodes are free for the next round.
func (s *stopping) round(ctx context.Context, random *rand.Rand, nodes []string) {
	var wg sync.WaitGroup
	s.batch(ctx, &wg, random, nodes)
	s.batch(ctx, &wg, random, shuffled(random, nodes)[:(len(nodes)+1)/2])
	wg.Wait()
}

// batch updates nodes, and leaves it to wg to stop and to follow the jobs.
func (s *stopping) batch(ctx context.Context, wg *sync.WaitGroup, random *rand.Rand, nodes []string) {
	n := s.files.Add(1)
	version, file := fmt.Sprintf("2.%d.0", n), fmt.Sprintf("storm-%d.fwpkg", n)
	s.c.WriteTrayPackage(file, version)
	queueing := metadata.AppendToOutgoingContext(ctx, onBusy, "queue")
	parent, children, err := s.caller.updateBatch(queueing, batchRequest(s.c.NodeSet(s.rack, nodes...), file), "key-"+file)
	if err != nil {
		s.violated("%v", err)
	}
	if parent == "" {
		return
	}
	jobs := []*stopped{{id: parent}}
	for _, a := range children {
		jobs = append(jobs, &stopped{id: a.job, node: a.node, parent: parent, version: version})
	}
	for _, j := range jobs {
		s.mu.Lock()
		s.jobs[j.id] = j
		s.mu.Unlock()
		var plan []rackbusv1.CancelMode
		// One of four batches is stopped as a whole, and four of five of the children by themselves.
		if j.node == "" && random.IntN(4) == 0 || j.node != "" && random.IntN(5) > 0 {
			plan = stopPlans()[random.IntN(len(stopPlans()))]
		}
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		wg.Go(func() { s.stop(ctx, own, j, plan) })
		wg.Go(func() { s.follow(ctx, j) })
	}
}

// stop asks for the plan, a request at a time.
func (s *stopping) stop(ctx context.Context, random *rand.Rand, j *stopped, plan []rackbusv1.CancelMode) {
	for i, mode := range plan {
		least, most := time.Duration(0), latestRequest
		if i > 0 {
			most = time.Second
		}
		wait(ctx, span{least, most}.draw(random))
		s.mu.Lock()
		j.asked = append(j.asked, mode)
		s.mu.Unlock()
		answer, err := call(ctx, s.caller, "", &rackbusv1.CancelJobRequest{JobId: j.id, Mode: mode, Reason: "storm"},
			func(cl *cluster.Client, ctx context.Context, req *rackbusv1.CancelJobRequest) (*rackbusv1.CancelJobResponse, error) {
				return cl.Jobs.CancelJob(ctx, req)
			})
		switch {
		case status.Code(err) == codes.FailedPrecondition:
			s.late.Add(1)
		case err != nil:
			s.violated("%s of job %s: %v", mode, j.id, err)
		case answer.GetJob().GetJobId() != j.id:
			s.violated("%s of job %s answers job %s", mode, j.id, answer.GetJob().GetJobId())
		default:
			s.taken.Add(1)
		}
	}
}

// follow reads a job until it has ended.
func (s *stopping) follow(ctx context.Context, j *stopped) {
	for {
		answer, err := call(ctx, s.caller, "", &rackbusv1.GetJobRequest{JobId: j.id},
			func(cl *cluster.Client, ctx context.Context, req *rackbusv1.GetJobRequest) (*rackbusv1.GetJobResponse, error) {
				return cl.Jobs.GetJob(ctx, req)
			})
		if err != nil {
			s.violated("read job %s: %v", j.id, err)
			return
		}
		if answer.GetJob().GetFinishedAt() != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			j.last, j.seen = answer.GetJob(), time.Now()
			return
		}
		if ctx.Err() != nil {
			s.violated("job %s is still %s: %s", j.id, answer.GetJob().GetState(), answer.GetJob().GetStateDescription())
			return
		}
		wait(ctx, pollPause)
	}
}
