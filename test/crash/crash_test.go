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
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/test/cluster"
)

var (
	seed     = flag.Uint64("crash.seed", 1, "seed of what happens to which process")
	updates  = flag.Int("crash.n", 0, "firmware updates to run; 0 is 80 with one broker, 16 with three")
	replicas = flag.Int("crash.replicas", 0, "run with 1 or 3 brokers only; 0 runs both")
	storm    = flag.Duration("crash.storm", 0, "how long processes are hit; 0 is 25 s in the short runs, and to the end when -crash.n is given")
	limit    = flag.Duration("crash.limit", 0, "limit of a run; 0 is 2 minutes and 1 s per update")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	callers = 4
	// every tenth tray refuses its image.
	faultyEvery = 10
	shelfShare  = 5
	// mostAgain is how many nodes a caller updates at once after its first round.
	mostAgain = 8
)

func TestCrash(t *testing.T) {
	t.Parallel()
	for _, brokers := range []int{1, 3} {
		if *replicas != 0 && *replicas != brokers {
			continue
		}
		// Callers poll while brokers die and come back, and follow finds a job that goes back.
		name := map[int]string{1: "brokers=1", 3: "B14 brokers=3"}[brokers]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := *updates
			if n == 0 {
				n = map[int]int{1: 80, 3: 16}[brokers]
			}
			newCrash(t, brokers, n).run()
		})
	}
}

// crash is one run: callers update the nodes of a rack over and over while chaos goes on.
type crash struct {
	t       *testing.T
	c       *cluster.Cluster
	rack    *sim.Rack
	brokers int
	n       int
	chaos   *chaos
	caller  *caller
	retries atomic.Int64
	started atomic.Int64
	files   atomic.Int64
	began   time.Time

	mu      sync.Mutex
	answers []answer
	parents []string
	// violations are what must never be.
	violations []string
}

// answer is a job that a caller was told of, and how it ended.
type answer struct {
	assignment
	version string
	status  *rackmanager.JobStatus
	// installed is the version on the device when the job read terminal.
	installed string
}

func newCrash(t *testing.T, brokers, n int) *crash {
	// All nodes are at work at once in the first round, and half of them once more later.
	nodes := max(n*2/3, callers*3)
	shelves := max(nodes/shelfShare, 1)
	c := cluster.Start(t, cluster.Options{
		Brokers: brokers, Replicas: 2,
		Racks: []sim.Options{{
			RackID: "crash", Compute: nodes - shelves, PowerShelves: shelves, Seed: *seed, KeepRequests: 1 << 20,
			Timing: bmc.Timing{Task: 800 * time.Millisecond, BMCOutage: 200 * time.Millisecond},
		}},
	})
	cr := &crash{t: t, c: c, rack: c.Racks[0], brokers: brokers, n: n, began: time.Now()}
	cr.chaos = newChaos(t, c, *seed, brokers)
	cr.caller = &caller{clients: []*cluster.Client{c.Client(0), c.Client(1)}, retries: &cr.retries}
	for i, d := range cr.rack.Devices() {
		if i%faultyEvery == faultyEvery-1 && d.Model().Compute() {
			d.UpdateKnobs(func(k *bmc.Knobs) { k.TaskEnd = &bmc.TaskEnd{} })
		}
	}
	return cr
}

func (cr *crash) violated(format string, args ...any) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.violations = append(cr.violations, fmt.Sprintf(format, args...))
}

func (cr *crash) run() {
	bound := *limit
	if bound == 0 {
		bound = 5*time.Minute + time.Duration(cr.n)*time.Second
	}
	ctx, cancel := context.WithTimeoutCause(cr.t.Context(), bound, fmt.Errorf("the run took longer than %s", bound))
	defer cancel()
	created, err := cr.caller.clients[0].CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: cr.c.NodeSet(cr.rack)})
	require.NoError(cr.t, err)
	require.Equal(cr.t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, created.GetResponse().GetStatus())

	raging, calm := context.WithTimeout(ctx, cr.stormLength(bound))
	defer calm()
	var wg sync.WaitGroup
	wg.Go(func() { cr.chaos.run(raging) })
	cr.callAll(ctx)
	calm()
	wg.Wait()
	settle(ctx, cr.c, cr.violated)
	cr.report(ctx)
	require.NoError(cr.t, context.Cause(ctx))
}

// stormLength keeps the short runs short.
func (cr *crash) stormLength(bound time.Duration) time.Duration {
	switch {
	case *storm > 0:
		return *storm
	case *updates == 0:
		return 25 * time.Second
	default:
		return bound
	}
}

// callAll lets every caller work on nodes of its own until all updates are done.
func (cr *crash) callAll(ctx context.Context) {
	mine := make([][]string, callers)
	for i, d := range cr.rack.Devices() {
		mine[i%callers] = append(mine[i%callers], d.ID())
	}
	var wg sync.WaitGroup
	for i, nodes := range mine {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(*seed, uint64(i)+1))
			cr.round(ctx, shuffled(random, nodes))
			for ctx.Err() == nil && cr.started.Load() < int64(cr.n) {
				cr.round(ctx, shuffled(random, nodes)[:1+random.IntN(min(len(nodes), mostAgain))])
			}
		})
	}
	wg.Wait()
}

// round gives nodes of a caller one job each, part of them as a batch, and follows the jobs to their end. A node
// whose job reads terminal is free: the next round must not be refused.
func (cr *crash) round(ctx context.Context, nodes []string) {
	var wg sync.WaitGroup
	var trays, singles []string
	for i, id := range nodes {
		if cr.rack.Device(id).Model().Compute() && i%3 != 0 {
			trays = append(trays, id)
		} else {
			singles = append(singles, id)
		}
	}
	cr.started.Add(int64(len(nodes)))
	for _, id := range singles {
		wg.Go(func() { cr.single(ctx, id) })
	}
	if len(trays) > 0 {
		wg.Go(func() { cr.batch(ctx, trays) })
	}
	wg.Wait()
}

// image writes a package with a version that no device has seen, and returns its file name.
func (cr *crash) image(shelf bool) (file, version string) {
	n := cr.files.Add(1)
	version = fmt.Sprintf("2.%d.0", n)
	if !shelf {
		file = fmt.Sprintf("tray-%d.fwpkg", n)
		cr.c.WriteTrayPackage(file, version)
		return file, version
	}
	file = fmt.Sprintf("shelf-%d.tar", n)
	content, err := firmwarepackage.ShelfArchive("LITEON-BMC", version, "PF-1333-7R", []byte("image "+version))
	if err != nil {
		cr.violated("make image: %v", err)
	}
	cr.c.WriteFirmware(file, content)
	return file, version
}

func (cr *crash) single(ctx context.Context, node string) {
	file, version := cr.image(cr.rack.Device(node).Model().Shelf())
	a, err := cr.caller.updateOne(ctx, cr.rack.ID(), node, file, "key-"+file)
	if err != nil {
		cr.violated("%v", err)
		return
	}
	cr.follow(ctx, a, version)
}

func (cr *crash) batch(ctx context.Context, trays []string) {
	file, version := cr.image(false)
	parent, children, err := cr.caller.updateBatch(ctx, &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: cr.c.NodeSet(cr.rack, trays...), Activate: true,
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			int32(rackmanager.NodeType_COMPUTE_GB200_NVIDIA): {Targets: []*rackmanager.FirmwareTarget{{Filename: file}}},
		},
	}, "key-"+file)
	if err != nil {
		cr.violated("%v", err)
	}
	if parent == "" {
		return
	}
	cr.mu.Lock()
	cr.parents = append(cr.parents, parent)
	cr.mu.Unlock()
	var wg sync.WaitGroup
	for _, a := range children {
		wg.Go(func() { cr.follow(ctx, a, version) })
	}
	wg.Wait()
	if _, err := cr.caller.follow(ctx, parent); err != nil {
		cr.violated("%v", err)
	}
}

func (cr *crash) follow(ctx context.Context, a assignment, version string) {
	s, err := cr.caller.follow(ctx, a.job)
	if err != nil {
		cr.violated("%v", err)
	}
	d := cr.rack.Device(a.node)
	component := cluster.TrayComponent
	if d.Model().Shelf() {
		component = cluster.ShelfComponent
	}
	cr.mu.Lock()
	defer cr.mu.Unlock()
	cr.answers = append(cr.answers, answer{a, version, s, d.Version(component)})
}

// eraseLimit is how long commands of ended jobs are waited for. Those whose fold died before it could erase them stay
// until they expire.
const eraseLimit = 5 * time.Second

// settle waits until every process is back, every job has ended and every public event is out.
func settle(ctx context.Context, c *cluster.Cluster, violated func(string, ...any)) {
	for _, p := range c.All() {
		if err := p.WaitReady(ctx); err != nil {
			violated("%v", err)
		}
	}
	erased := time.Now().Add(eraseLimit)
	for {
		s, err := c.Snapshot(ctx)
		quiet := err == nil && len(s.Open()) == 0 && s.Outbox == 0
		if quiet && (s.Commands == 0 || time.Now().After(erased)) || ctx.Err() != nil {
			return
		}
		wait(ctx, pollPause)
	}
}
