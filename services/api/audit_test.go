// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/telemetry"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

func asAdmin(o *Options) { o.Access = access.Open(access.Admin) }

// TestAuditSaysWhatWasDone expects one record for each change, newest first, and
// no secret in any.
func TestAuditSaysWhatWasDone(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asAdmin)
	ctx := t.Context()
	h.register(compute("r1", "a"), compute("r1", "b"))
	h.firmware("fw.pkg", "x")
	up, err := h.rm.UpdateFirmware(with(ctx, metaJobName, "spring", metaOnBusy, "queue"),
		&rackmanager.UpdateFirmwareRequest{RackId: "r1", NodeId: "a", Filename: "fw.pkg", ForceUpdate: true})
	require.NoError(t, err)
	_, err = h.jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{
		JobId: up.GetJobId(), Mode: rackbusv1.CancelMode_CANCEL_MODE_TERMINATE, Reason: "wrong file, password=" + plantedPassword})
	require.NoError(t, err)
	_, err = h.rm.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{RackId: "r1", NodeId: "z", Operation: opOn})
	require.NoError(t, err)
	_, err = h.rm.AddFirmwareObject(ctx, &rackmanager.AddFirmwareObjectRequest{
		ConfigJson: "{" + plantedPassword, AccessToken: new(plantedPassword), HardwareType: "gb200"})
	require.Error(t, err)
	_, err = rackmanagerv2.NewRackManagerV2Client(h.cc).StartSystemValidation(ctx, &rackmanagerv2.StartSystemValidationRequest{
		Nodes: set(compute("r2", "v")), ConfigOverride: plantedPassword})
	require.NoError(t, err)
	_, err = h.jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{})
	require.NoError(t, err)

	records := h.audited(&rackbusv1.ListAuditRecordsRequest{})
	var lines []string
	for _, r := range records {
		var nodes []string
		for _, n := range r.GetNodes() {
			nodes = append(nodes, n.GetRackId()+"/"+n.GetNodeId())
		}
		attributes := make([]string, 0, len(r.GetAttributes()))
		for _, k := range sortedKeys(r.GetAttributes()) {
			attributes = append(attributes, k+"="+r.GetAttributes()[k])
		}
		lines = append(lines, strings.Join([]string{
			r.GetRpc()[strings.LastIndexByte(r.GetRpc(), '/')+1:], r.GetOutcome(), strings.Join(nodes, " "), strings.Join(attributes, " "),
		}, "|"))
		require.NotContains(t, prototext.Format(r), plantedPassword)
		require.Equal(t, "unknown", r.GetIdentity())
		require.Equal(t, rackbusv1.Role_ROLE_ADMIN, r.GetRole())
		require.Positive(t, r.GetDuration().AsDuration())
		require.WithinDuration(t, time.Now(), r.GetAt().AsTime(), time.Minute)
		require.EqualValues(t, len(r.GetNodes()), r.GetNodeCount())
	}
	require.Equal(t, []string{
		"StartSystemValidation|FAILURE|r2/v|",
		"AddFirmwareObject|INVALID_ARGUMENT||hardware_type=gb200",
		"SetPowerState|FAILURE|r1/z|operation=POWER_OPERATION_ON",
		"CancelJob|OK|r1/a|mode=CANCEL_MODE_TERMINATE reason=wrong file, password=XXXX",
		"UpdateFirmware|OK|r1/a|filename=fw.pkg force_update=true job_name=spring on_busy=queue",
		"CreateNodes|OK|r1/a r1/b|",
	}, lines)
	require.Contains(t, records[2].GetMessage(), "node not found: z", "what the answer has no field for")
	require.Equal(t, up.GetJobId(), records[3].GetJobId())
	require.Equal(t, up.GetJobId(), records[4].GetJobId())

	require.NotContains(t, h.log.String(), plantedPassword)
	// Nor does the job keep what its caller should not have said.
	stopped, err := h.jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: up.GetJobId()})
	require.NoError(t, err)
	require.NotContains(t, prototext.Format(stopped), plantedPassword)
	history, err := h.jobs.GetJobEvents(ctx, &rackbusv1.GetJobEventsRequest{JobId: up.GetJobId()})
	require.NoError(t, err)
	require.Contains(t, prototext.Format(history), "wrong file, password=XXXX")
	require.NotContains(t, prototext.Format(history), plantedPassword)
	require.Regexp(t, `msg=audit op=/rackbus.v1.Jobs/CancelJob caller=unknown role=admin peer=\S+ outcome=OK job_id=`+up.GetJobId()+
		` rack=r1 node=a nodes=1 mode=CANCEL_MODE_TERMINATE`, h.log.String())
}

func TestAuditKeepsTheFirstNodesOfABatch(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asAdmin)
	const n = maxAuditNodes + 50
	nodes := set()
	for i := range n {
		nodes.Nodes = append(nodes.Nodes, compute("r1", fmt.Sprintf("n%d", i)), compute("r1", fmt.Sprintf("n%d", i)))
	}
	_, err := h.rm.BatchSetPowerState(t.Context(), &rackmanager.BatchSetPowerStateRequest{Nodes: nodes, Operation: opOn})
	require.NoError(t, err)
	parent, _ := h.admit("r2", 3)
	records := h.audited(&rackbusv1.ListAuditRecordsRequest{})
	require.Len(t, records, 2)
	require.Equal(t, parent.String(), records[0].GetJobId())
	require.EqualValues(t, 3, records[0].GetNodeCount())
	require.EqualValues(t, n, records[1].GetNodeCount())
	require.Len(t, records[1].GetNodes(), maxAuditNodes)
	require.Equal(t, outcomeFailure, records[1].GetOutcome(), "no agent runs")
}

// Nodes that name no rack of their own are of the rack that the request names.
func TestAuditTakesTheRackFromTheRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		req  *rackmanager.ApplyStoredFirmwareObjectRequest
		want []*rackbusv1.AuditedNode
	}{
		{&rackmanager.ApplyStoredFirmwareObjectRequest{RackId: "r", Nodes: &rackmanager.NodeSet{Nodes: []*rackmanager.NodeInfo{
			{NodeId: "a"}, {NodeId: "b", RackId: "s"}}}}, []*rackbusv1.AuditedNode{{RackId: "r", NodeId: "a"}, {RackId: "s", NodeId: "b"}}},
		{&rackmanager.ApplyStoredFirmwareObjectRequest{RackId: "r"}, []*rackbusv1.AuditedNode{{RackId: "r"}}},
		{&rackmanager.ApplyStoredFirmwareObjectRequest{}, nil},
	} {
		r := auditRecord(t.Context(), ended{req: c.req, resp: &rackmanager.ApplyStoredFirmwareObjectResponse{}, start: time.Now()})
		require.Equal(t, fmt.Sprint(c.want), fmt.Sprint(r.GetNodes()))
		require.EqualValues(t, len(c.want), r.GetNodeCount())
	}
}

func TestAuditFilters(t *testing.T) {
	t.Parallel()
	h := newHarness(t, asAdmin)
	base := time.Now().UTC()
	put := func(i int, rpc, who, jobID string, nodes ...*rackbusv1.AuditedNode) {
		require.NoError(t, h.conn.PutAudit(t.Context(), fmt.Sprint(i), &rackbusv1.AuditRecord{
			V: 1, At: timestamppb.New(base.Add(time.Duration(i) * time.Minute)), Identity: who, Rpc: rpc, JobId: jobID, Nodes: nodes,
			Attributes: map[string]string{besideJobs: map[bool]string{true: "j8,j9"}[i == 1]}}))
	}
	put(0, "/rack_manager.RackManager/SetPowerState", "ann", "", &rackbusv1.AuditedNode{RackId: "r1", NodeId: "a"})
	put(1, "/rack_manager.RackManager/BatchSetPowerState", "bob", "", &rackbusv1.AuditedNode{RackId: "r1", NodeId: "b"}, &rackbusv1.AuditedNode{RackId: "r2", NodeId: "a"})
	put(2, "/rackbus.v1.Jobs/CancelJob", "ann", "j1")
	put(3, "/rackbus.v1.Jobs/CancelJob", "bob", "j2", &rackbusv1.AuditedNode{RackId: "r2", NodeId: "a"})
	moment := func(i int) *timestamppb.Timestamp { return timestamppb.New(base.Add(time.Duration(i) * time.Minute)) }
	for name, c := range map[string]struct {
		req  *rackbusv1.ListAuditRecordsRequest
		want []uint64
	}{
		"all":         {&rackbusv1.ListAuditRecordsRequest{}, []uint64{4, 3, 2, 1}},
		"pages":       {&rackbusv1.ListAuditRecordsRequest{PageSize: 1}, []uint64{4, 3, 2, 1}},
		"identity":    {&rackbusv1.ListAuditRecordsRequest{Identity: "ann"}, []uint64{3, 1}},
		"rpc":         {&rackbusv1.ListAuditRecordsRequest{Rpc: "/rackbus.v1.Jobs/CancelJob", PageSize: 1}, []uint64{4, 3}},
		"method":      {&rackbusv1.ListAuditRecordsRequest{Rpc: "SetPowerState"}, []uint64{1}},
		"job":         {&rackbusv1.ListAuditRecordsRequest{JobId: "j1"}, []uint64{3}},
		"forced":      {&rackbusv1.ListAuditRecordsRequest{JobId: "j9"}, []uint64{2}},
		"rack":        {&rackbusv1.ListAuditRecordsRequest{RackId: "r2"}, []uint64{4, 2}},
		"node":        {&rackbusv1.ListAuditRecordsRequest{NodeId: "b"}, []uint64{2}},
		"both of one": {&rackbusv1.ListAuditRecordsRequest{RackId: "r1", NodeId: "a"}, []uint64{1}},
		"since":       {&rackbusv1.ListAuditRecordsRequest{Since: moment(2)}, []uint64{4, 3}},
		"until":       {&rackbusv1.ListAuditRecordsRequest{Until: moment(2)}, []uint64{2, 1}},
		"nothing":     {&rackbusv1.ListAuditRecordsRequest{Since: moment(60)}, nil},
	} {
		var got []uint64
		for _, r := range h.audited(c.req) {
			got = append(got, r.GetSequence())
		}
		require.Equal(t, c.want, got, name)
	}
	client := rackbusv1.NewAccessClient(h.cc)
	for _, req := range []*rackbusv1.ListAuditRecordsRequest{
		{PageToken: "x"}, {PageToken: "0"}, {Since: &timestamppb.Timestamp{Nanos: -1}}, {Until: &timestamppb.Timestamp{Nanos: -1}},
	} {
		_, err := client.ListAuditRecords(t.Context(), req)
		requireCode(t, err, codes.InvalidArgument, "")
	}
	small := newPage(t, &rackbusv1.ListAuditRecordsRequest{}, 1)
	require.True(t, small.take(&rackbusv1.AuditRecord{Sequence: 9}), "a page has at least one record")
	require.False(t, small.take(&rackbusv1.AuditRecord{Sequence: 8}))
	require.Equal(t, "9", small.resp.GetNextPageToken())
	rare := newPage(t, &rackbusv1.ListAuditRecordsRequest{Identity: "eve"}, 1)
	for i := range maxAuditScan - 1 {
		require.True(t, rare.take(&rackbusv1.AuditRecord{Sequence: uint64(30_000 - i)}))
	}
	require.False(t, rare.take(&rackbusv1.AuditRecord{Sequence: 10_001}))
	require.Equal(t, "10001", rare.resp.GetNextPageToken())
}

func newPage(t *testing.T, req *rackbusv1.ListAuditRecordsRequest, budget int) *auditPage {
	t.Helper()
	p, err := newAuditPage(req, budget)
	require.NoError(t, err)
	return p
}

// The answer of a call stands, and goes out, when its record cannot be stored.
func TestAnswerStandsWithoutItsRecord(t *testing.T) {
	t.Parallel()
	h := newHarness(t, func(o *Options) {
		o.Timing.AuditLimit, o.Timing.AuditPatience, o.Timing.BrokerLimit = 20*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
	})
	h.broker.Close()
	_, err := h.rm.SetPowerState(t.Context(), &rackmanager.SetPowerStateRequest{RackId: "r1", NodeId: "a"})
	requireCode(t, err, codes.InvalidArgument, "invalid operation: 0")
	require.Eventually(t, func() bool { return counted(t, h.server.metrics.auditLost) == 1 }, 20*time.Second, 5*time.Millisecond)
	require.Contains(t, h.log.String(), "audit record lost")
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// flakyLog fails until a moment.
type flakyLog struct {
	from  time.Time
	block bool
	kept  map[string]*rackbusv1.AuditRecord
}

func (f *flakyLog) PutAudit(ctx context.Context, id string, r *rackbusv1.AuditRecord) error {
	if time.Now().Before(f.from) {
		if f.block {
			<-ctx.Done()
		}
		return errors.New("away")
	}
	f.kept[id] = r
	return nil
}

func TestRecordsWaitForTheBroker(t *testing.T) {
	t.Parallel()
	timing := Timing{AuditLimit: time.Second, AuditPatience: 30 * time.Second, BrokerPause: 200 * time.Millisecond}
	for name, c := range map[string]struct {
		away        time.Duration
		block       bool
		kept, lost  int
		answerAfter time.Duration
	}{
		"there":    {0, false, 1, 0, 0},
		"a moment": {5 * time.Second, false, 1, 0, 0},
		"slow":     {5 * time.Second, true, 0, 1, time.Second}, // the try at the broker does not come back
		"for long": {time.Minute, false, 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})
				to := &flakyLog{from: time.Now().Add(c.away), block: c.block, kept: make(map[string]*rackbusv1.AuditRecord)}
				a := newAuditor(to, timing, lost, telemetry.NewLogger(telemetry.LogOptions{Output: &lockedBuffer{}}))
				start := time.Now()
				a.ended(t.Context(), ended{method: "/rackbus.v1.Jobs/CancelJob", start: start})
				require.Equal(t, c.answerAfter, time.Since(start))
				a.waiting.Wait()
				require.Len(t, to.kept, c.kept)
				require.EqualValues(t, c.lost, counted(t, lost))
				a.close()
			})
		})
	}
}

// The answer of a call that has used up its time goes out before its caller is gone.
func TestRecordsLeaveTheCallerItsAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})
		to := &flakyLog{from: time.Now().Add(time.Second), block: true, kept: make(map[string]*rackbusv1.AuditRecord)}
		a := newAuditor(to, Timing{AuditLimit: time.Second, AuditPatience: time.Second, BrokerPause: 2 * time.Second}, lost,
			telemetry.NewLogger(telemetry.LogOptions{Output: &lockedBuffer{}}))
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		start := time.Now()
		a.ended(ctx, ended{method: "/rackbus.v1.Jobs/CancelJob", start: start})
		require.Equal(t, 200*time.Millisecond, time.Since(start))
		require.NoError(t, ctx.Err())
		a.close()
	})
}

// Nothing about a record harms the call, and what still waits at the end is lost.
func TestAuditorEnds(t *testing.T) {
	t.Parallel()
	lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})
	log := telemetry.NewLogger(telemetry.LogOptions{Output: &lockedBuffer{}})
	a := newAuditor(panicking{}, Timing{AuditLimit: time.Second}, lost, log)
	a.ended(t.Context(), ended{method: "/rackbus.v1.Jobs/CancelJob"})
	require.EqualValues(t, 1, counted(t, lost))
	a = newAuditor(&flakyLog{from: time.Now().Add(time.Hour)}, Timing{AuditLimit: time.Second, AuditPatience: time.Hour, BrokerPause: time.Second}, lost, log)
	for range maxAuditBacklog + 1 {
		a.ended(t.Context(), ended{method: "/rackbus.v1.Jobs/CancelJob"})
	}
	require.EqualValues(t, 2, counted(t, lost), "the backlog is bounded")
	a.ended(t.Context(), ended{method: "/rackbus.v1.Jobs/ListJobs", err: status.Error(codes.Internal, "x")})
	require.EqualValues(t, 2, counted(t, lost), "reads leave no record")
	a.close()
	require.EqualValues(t, 2+maxAuditBacklog, counted(t, lost))
}

// A server that ends while a record waits for the next try does not lose it.
func TestRecordsHaveALastTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})
		to := &flakyLog{from: time.Now().Add(500 * time.Millisecond), kept: make(map[string]*rackbusv1.AuditRecord)}
		a := newAuditor(to, Timing{AuditLimit: time.Second, AuditPatience: time.Minute, BrokerPause: time.Second}, lost,
			telemetry.NewLogger(telemetry.LogOptions{Output: &lockedBuffer{}}))
		a.ended(t.Context(), ended{method: "/rackbus.v1.Jobs/CancelJob"})
		time.Sleep(600 * time.Millisecond)
		a.close()
		require.Len(t, to.kept, 1)
		require.Zero(t, counted(t, lost))
	})
}

type panicking struct{}

func (panicking) PutAudit(context.Context, string, *rackbusv1.AuditRecord) error { panic("boom") }
