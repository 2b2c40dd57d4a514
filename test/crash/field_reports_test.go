// SPDX-License-Identifier: Apache-2.0

package crash_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

// field is a rack whose processes suffer what was reported of others.
type field struct {
	*testing.T
	ctx    context.Context
	c      *cluster.Cluster
	rack   *sim.Rack
	client *cluster.Client
}

// TestFieldReports shows field reports of which whole processes are a part.
func TestFieldReports(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	c := cluster.Start(t, cluster.Options{Racks: []sim.Options{{
		RackID: "field", Compute: 4, KeepRequests: 1 << 16, Timing: bmc.Timing{Task: time.Second, BMCOutage: 200 * time.Millisecond},
	}}})
	f := field{ctx: ctx, c: c, rack: c.Racks[0], client: c.Client(0)}
	created, err := f.client.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: c.NodeSet(f.rack)})
	require.NoError(t, err)
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, created.GetResponse().GetStatus())
	for _, report := range []struct {
		name string
		show func(field)
	}{
		{"K1 all services die in the middle", field.servicesDie},
		{"K11 versions after an update", field.versions},
		{"B12 the broker freezes", field.brokerFreezes},
		{"C8 the broker is away", field.brokerIsAway},
	} {
		t.Run(report.name, func(t *testing.T) {
			f.T = t
			report.show(f)
		})
	}
	snapshot, err := c.Snapshot(ctx)
	require.NoError(t, err)
	require.Empty(t, snapshot.Open())
	require.Empty(t, snapshot.Violations())
}

// servicesDie kills all but the broker while trays install. Their jobs keep their ids, and end as if nothing had been.
func (f field) servicesDie() {
	f.c.WriteTrayPackage("k1.fwpkg", "4.4.4")
	started, err := f.client.BatchUpdateFirmware(f.ctx, batchRequest(f.c.NodeSet(f.rack), "k1.fwpkg"))
	require.NoError(f, err)
	require.Len(f, started.GetJobs(), len(f.rack.Devices()))
	for _, d := range f.rack.Devices() {
		for len(f.rack.Uploads(d.ID())) == 0 {
			require.NoError(f, f.ctx.Err())
			wait(f.ctx, pollPause)
		}
	}
	f.services(func(p *cluster.Process) { p.Kill() })
	f.services(func(p *cluster.Process) { require.NoError(f, p.Start()) })
	f.services(func(p *cluster.Process) { require.NoError(f, p.WaitReady(f.ctx)) })
	ledgerOf := func() cluster.Ledger { return cluster.Judge(f.c.Writes()) }
	for _, j := range started.GetJobs() {
		s, err := f.client.WaitJob(f.ctx, j.GetJobId())
		require.NoError(f, err)
		require.Equal(f, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, s.GetExecutionState(), "%v", s)
		require.Equal(f, "4.4.4", f.rack.Device(j.GetNodeId()).Version(cluster.TrayComponent))
		require.Equal(f, 1, ledgerOf().Taken[j.GetJobId()], "no second flash")
	}
	s, err := f.client.WaitJob(f.ctx, started.GetResponse().GetJobId())
	require.NoError(f, err)
	require.Equal(f, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, s.GetExecutionState(), "%v", s)
	require.Empty(f, ledgerOf().Stale)
	require.Empty(f, ledgerOf().Overlaps)
}

func (f field) services(do func(*cluster.Process)) {
	for _, p := range f.c.All() {
		if p.Role != cluster.RoleBroker {
			do(p)
		}
	}
}

// versions reads the inventory of trays that have just been updated, one of which has gone meanwhile.
func (f field) versions() {
	lost := f.rack.Devices()[0]
	lost.SetReachable(false)
	defer lost.SetReachable(true)
	read, err := f.client.BatchGetFirmwareInventory(f.ctx, &rackmanager.BatchGetFirmwareInventoryRequest{Nodes: f.c.NodeSet(f.rack)})
	require.NoError(f, err)
	for _, r := range read.GetResponse().GetNodeResults() {
		require.Equal(f, r.GetNodeId() == lost.ID(), r.GetErrorMessage() != "", "%v", r)
	}
	require.Len(f, read.GetNodes(), len(f.rack.Devices())-1)
	for _, n := range read.GetNodes() {
		versions := map[string]string{}
		for _, e := range n.GetFirmwareList() {
			versions[e.GetName()] = e.GetVersion()
		}
		require.Equal(f, "4.4.4", versions[cluster.TrayComponent], n.GetNodeId())
		for name, version := range versions {
			require.Equal(f, f.rack.Device(n.GetNodeId()).Version(name), version, name)
		}
	}
}

// brokerFreezes stops the broker with its connections open. Callers hear of it while they still listen: a call rides
// out the change of a leader in a cluster, and gives up after 8 s.
func (f field) brokerFreezes() {
	broker := f.c.Processes(cluster.RoleBroker)[0]
	require.NoError(f, broker.Pause())
	f.c.WriteTrayPackage("b12.fwpkg", "4.4.5")
	asks := []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := f.client.GetJobStatus(ctx, &rackmanager.GetJobStatusRequest{JobId: "b0f4ad28-8b7e-4c9c-92e4-cc3c00000000"})
			return err
		},
		func(ctx context.Context) error {
			_, err := f.client.BatchUpdateFirmware(ctx, batchRequest(f.c.NodeSet(f.rack), "b12.fwpkg"))
			return err
		},
	}
	ctx, cancel := context.WithTimeout(f.ctx, 3*callLimit) // of which the API uses 8 s
	defer cancel()
	answers := make(chan error, len(asks))
	for _, ask := range asks {
		go func() { answers <- ask(ctx) }()
	}
	for range asks {
		err := <-answers
		require.Equal(f, codes.Unavailable, status.Code(err), "%v", err)
	}
	require.NoError(f, ctx.Err())
	require.NoError(f, broker.Resume())
	f.works("b12-after.fwpkg", "4.4.6")
}

// outage is longer than it takes clients to notice.
const outage = 5 * time.Second

// brokerIsAway takes the broker away. The processes go on by themselves.
func (f field) brokerIsAway() {
	broker := f.c.Processes(cluster.RoleBroker)[0]
	broker.Kill()
	wait(f.ctx, outage)
	f.services(func(p *cluster.Process) { require.True(f, p.Alive(), p.Name) })
	require.NoError(f, broker.Start())
	require.NoError(f, broker.WaitReady(f.ctx))
	f.works("c8.fwpkg", "4.4.7")
	f.services(func(p *cluster.Process) { require.True(f, p.Alive(), p.Name) })
}

// works updates a tray with the processes as they are.
func (f field) works(file, version string) {
	f.services(func(p *cluster.Process) { require.NoError(f, p.WaitReady(f.ctx)) })
	f.c.WriteTrayPackage(file, version)
	tray := f.rack.Devices()[1]
	who := &caller{clients: []*cluster.Client{f.client}, retries: new(atomic.Int64)}
	a, err := who.updateOne(f.ctx, f.rack.ID(), tray.ID(), file, "key-"+file)
	require.NoError(f, err)
	s, err := who.follow(f.ctx, a.job)
	require.NoError(f, err)
	require.Equal(f, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, s.GetExecutionState(), "%v", s)
	require.Equal(f, version, tray.Version(cluster.TrayComponent))
}
