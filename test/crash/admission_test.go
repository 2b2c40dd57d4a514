// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/reqlog"
	"github.com/rackbus/rackbus/test/cluster"
)

var rounds = flag.Int("crash.rounds", 20, "rounds of TestContention")

// batchRequest asks for an update of nodes with one package.
func batchRequest(nodes *rackmanager.NodeSet, file string) *rackmanager.BatchUpdateFirmwareRequest {
	return &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: nodes, Activate: true,
		FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			int32(rackmanager.NodeType_COMPUTE_GB200_NVIDIA): {Targets: []*rackmanager.FirmwareTarget{{Filename: file}}},
		},
	}
}

// TestAdmissionCutOff kills the API between two chunks of a batch of 600 nodes. Nothing reaches a device before the
// jobs service has closed the admission; what was attached by then runs to its end, and the same key names the job.
func TestAdmissionCutOff(t *testing.T) {
	t.Parallel()
	const nodes, chunk = 600, 240
	c := cluster.Start(t, cluster.Options{
		Settings: map[string]string{"timing.bus.admit_timeout": `"6s"`},
		Racks:    []sim.Options{{RackID: "wide", Compute: nodes, KeepRequests: 1 << 20, Timing: bmc.Timing{Task: 500 * time.Millisecond, BMCOutage: 100 * time.Millisecond}}},
	})
	rack := c.Racks[0]
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	api := c.Processes(cluster.RoleAPI)[0]
	api.Kill()
	api.Setenv("RACKBUS_FAILPOINTS=admission.between_chunks=kill@1")
	require.NoError(t, api.Start())
	require.NoError(t, api.WaitReady(ctx))
	c.WriteTrayPackage("wide.fwpkg", "3.0.0")
	client := c.Client(0)
	keyed := metadata.AppendToOutgoingContext(ctx, idempotencyKey, "wide")
	request := batchRequest(c.NodeSet(rack), "wide.fwpkg")
	_, err := client.BatchUpdateFirmware(keyed, request)
	require.Error(t, err, "the API died in the middle of the call")
	require.Error(t, api.WaitExit(ctx))

	parent := awaitAdmitted(ctx, t, c, rack)
	require.EqualValues(t, chunk, parent.Total, "what was attached before the API died runs")

	api.Setenv()
	require.NoError(t, api.Start())
	require.NoError(t, api.WaitReady(ctx))
	again, err := client.BatchUpdateFirmware(keyed, request)
	require.NoError(t, err)
	require.Equal(t, parent.ID.String(), again.GetResponse().GetJobId(), "the same key is the same job")
	status, err := client.WaitJob(ctx, parent.ID.String())
	require.NoError(t, err)
	require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, status.GetExecutionState(), "%v", status)
	snapshot, err := c.Snapshot(ctx)
	require.NoError(t, err)
	require.Empty(t, snapshot.Open())
	require.Empty(t, snapshot.Violations())
	require.Len(t, snapshot.Records, 1+chunk)
	ledger := cluster.Judge(c.Writes())
	require.Empty(t, ledger.Stale)
	require.Empty(t, ledger.Overlaps)
	require.Equal(t, chunk, total(ledger.Taken))
}

// awaitAdmitted returns the parent once it reads admitted, and makes sure that no request was on a device before.
func awaitAdmitted(ctx context.Context, t *testing.T, c *cluster.Cluster, rack *sim.Rack) job.Record {
	t.Helper()
	looks := 0
	for {
		// The devices first: what they have seen by now came before what the record tells next.
		seen := len(rack.Requests("", reqlog.Filter{}))
		snapshot, err := c.Snapshot(ctx)
		require.NoError(t, err)
		for id, r := range snapshot.Records {
			if !id.IsTopLevel() {
				continue
			}
			if r.Admitted {
				require.NotZero(t, looks, "the admission was closed before the test could look")
				t.Logf("%d looks at the batch before it was admitted with %d children: no request on any device", looks, r.Total)
				return r
			}
			require.Zero(t, seen, "requests reached devices before the batch was admitted")
			looks++
		}
		require.NoError(t, ctx.Err())
		wait(ctx, pollPause)
	}
}

// TestContention lets eight callers ask for jobs on the same fifty nodes at once, as batches and one by one. Each node
// gets exactly one job a round; the other callers are refused with its id.
func TestContention(t *testing.T) {
	t.Parallel()
	const nodes, callers = 50, 8
	c := cluster.Start(t, cluster.Options{Replicas: 2, Racks: []sim.Options{{RackID: "crowd", Compute: nodes}}})
	// Without agents no job ends, so a node that is free again cannot hide a second job.
	for _, p := range c.Processes(cluster.RoleComputeAgent) {
		p.Kill()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+time.Duration(*rounds)*3*time.Second)
	defer cancel()
	c.WriteTrayPackage("crowd.fwpkg", "3.0.0")
	var retries atomic.Int64
	who := &caller{clients: []*cluster.Client{c.Client(0), c.Client(1)}, retries: &retries}
	created, err := who.clients[0].CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: c.NodeSet(c.Racks[0])})
	require.NoError(t, err)
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, created.GetResponse().GetStatus())
	refused := 0
	for round := range *rounds {
		crowd := &crowd{c: c, who: who, admitted: map[string][]string{}}
		var wg sync.WaitGroup
		for i := range callers {
			random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			wg.Go(func() { crowd.ask(ctx, t, random, i%2 == 0, fmt.Sprintf("%d-%d", round, i)) })
		}
		wg.Wait()
		require.False(t, t.Failed())
		require.Len(t, crowd.admitted, nodes, "round %d", round)
		for node, jobs := range crowd.admitted {
			require.Len(t, jobs, 1, "round %d: %s", round, node)
		}
		refused += crowd.refused
		crowd.cancelAll(ctx, t)
	}
	snapshot, err := c.Snapshot(ctx)
	require.NoError(t, err)
	require.Empty(t, snapshot.Open())
	require.Empty(t, snapshot.Violations())
	t.Logf("%d rounds of %d callers on %d nodes: %d jobs, one per node and round; %d refusals; %d calls repeated",
		*rounds, callers, nodes, *rounds*nodes, refused, retries.Load())
	require.Equal(t, *rounds*nodes*(callers-1), refused)
}

// crowd is one round.
type crowd struct {
	c   *cluster.Cluster
	who *caller

	mu       sync.Mutex
	admitted map[string][]string
	refused  int
}

func (cr *crowd) note(node, id string) {
	cr.mu.Lock()
	defer cr.mu.Unlock()
	if id == "" {
		cr.refused++
		return
	}
	cr.admitted[node] = append(cr.admitted[node], id)
}

// ask is one caller: all nodes in one batch, or a call for each.
func (cr *crowd) ask(ctx context.Context, t *testing.T, random *rand.Rand, batch bool, key string) {
	var ids []string
	for _, d := range cr.c.Racks[0].Devices() {
		ids = append(ids, d.ID())
	}
	ids = shuffled(random, ids)
	if !batch {
		for _, id := range ids {
			// A refusal is what this test is about; that it was one is seen from the count.
			a, err := cr.who.updateOne(ctx, cr.c.Racks[0].ID(), id, "crowd.fwpkg", key+id)
			if err != nil && ctx.Err() != nil {
				t.Error(err)
				return
			}
			cr.note(id, a.job)
		}
		return
	}
	set := cr.c.NodeSet(cr.c.Racks[0], ids...)
	slices.SortFunc(set.Nodes, func(a, b *rackmanager.NodeInfo) int {
		return slices.Index(ids, a.GetNodeId()) - slices.Index(ids, b.GetNodeId())
	})
	parent, children, err := cr.who.updateBatch(ctx, batchRequest(set, "crowd.fwpkg"), key)
	if parent == "" {
		t.Error(err)
		return
	}
	given := map[string]string{}
	for _, a := range children {
		given[a.node] = a.job
	}
	for _, id := range ids {
		cr.note(id, given[id])
	}
}

// cancelAll ends the jobs of the round, which no agent has taken, and waits until they read terminal.
func (cr *crowd) cancelAll(ctx context.Context, t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for _, jobs := range cr.admitted {
		wg.Go(func() {
			_, err := call(ctx, cr.who, "", &rackbusv1.CancelJobRequest{JobId: jobs[0], Reason: "next round"},
				func(cl *cluster.Client, ctx context.Context, req *rackbusv1.CancelJobRequest) (*rackbusv1.CancelJobResponse, error) {
					return cl.Jobs.CancelJob(ctx, req)
				})
			if err != nil {
				t.Errorf("cancel %s: %v", jobs[0], err)
				return
			}
			if _, err := cr.who.follow(ctx, jobs[0]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.False(t, t.Failed())
}
