// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/porttest"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/pkg/telemetry"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// The tests wait for leases and limits, hardly ever for a processor.
const sideBySide = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", sideBySide); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// plantedPassword must show up nowhere but at the agents.
const plantedPassword = "pl4nted-s3cret"

// harness is an API server on a broker of its own, with a client and, as far as a
// test wants, agents.
type harness struct {
	t       *testing.T
	broker  *broker.Broker
	store   string    // where the broker keeps its streams
	conn    *bus.Conn // plays fold and agents
	server  *Server
	addr    string
	rm      rackmanager.RackManagerClient
	jobs    rackbusv1.JobsClient
	cc      *grpc.ClientConn
	files   string
	log     *lockedBuffer
	reg     *prometheus.Registry
	openers map[node.Family]*seal.Opener
	stop    func()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newHarness(t *testing.T, change ...func(*Options)) *harness {
	t.Helper()
	store := brokertest.StoreDir(t)
	b := brokertest.StartIn(t, store, porttest.Free(t, 1)[0]) // so that it can be started there again
	h := &harness{t: t, broker: b, store: store, files: t.TempDir(), log: &lockedBuffer{}, openers: make(map[node.Family]*seal.Opener)}
	h.conn = h.connect("test")
	require.NoError(t, h.conn.Provision(t.Context()))
	h.start(change...)
	return h
}

func (h *harness) connect(name string) *bus.Conn {
	c, err := bus.Connect(bus.Options{URLs: []string{h.broker.URL()}, Name: name, Role: name})
	require.NoError(h.t, err)
	h.t.Cleanup(c.Close)
	return c
}

// start runs a server and connects a client to it.
func (h *harness) start(change ...func(*Options)) {
	t := h.t
	apiConn := h.connect("api")
	require.NoError(t, apiConn.Verify(t.Context()))
	keys := make(seal.PublicKeys)
	for _, f := range node.KeyFamilies() {
		seed, public, err := seal.GenerateFamilyKey()
		require.NoError(t, err)
		keys[f] = []string{public}
		h.openers[f], err = seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{})
		require.NoError(t, err)
	}
	sealer, err := seal.NewSealer(keys)
	require.NoError(t, err)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h.addr, h.reg = lis.Addr().String(), prometheus.NewRegistry()
	opts := Options{
		Conn: apiConn, Sealer: sealer, Listener: lis, Plaintext: true, FirmwareDir: h.files, Registerer: h.reg,
		Profiles: []string{"standard"},
		Logger:   telemetry.NewLogger(telemetry.LogOptions{Output: h.log, Level: slog.LevelDebug}),
		Timing: Timing{
			BrokerLimit: 20 * time.Second, BrokerPause: 20 * time.Millisecond, PowerLimit: 5 * time.Second,
			InventoryLimit: 5 * time.Second, CancelWait: 100 * time.Millisecond, HealthInterval: 20 * time.Millisecond,
			WatchRetry: 20 * time.Millisecond, DrainGrace: time.Millisecond,
		},
	}
	for _, c := range change {
		c(&opts)
	}
	h.server, err = New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.server.Run(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(h.stop)
	if opts.TLS == nil {
		h.dial(grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	require.Eventually(t, func() bool { return h.server.view.Ready() == nil }, 20*time.Second, 5*time.Millisecond)
}

func (h *harness) dial(opts ...grpc.DialOption) {
	cc, err := grpc.NewClient(h.addr, opts...)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { cc.Close() })
	h.cc, h.rm, h.jobs = cc, rackmanager.NewRackManagerClient(cc), rackbusv1.NewJobsClient(cc)
}

// handlers answer node requests of a test.
type handlers map[string]bus.RequestHandler

// agents serves node requests of a family.
func (h *harness) agents(f node.Family, hs handlers) {
	s, err := h.conn.Serve(f, "1.0.0", 100, hs)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = s.Close() })
	// The broker has taken the subscriptions once it answers what came after.
	_, _, err = h.conn.Capacity(h.t.Context())
	require.NoError(h.t, err)
}

// powerAgents answer every family with the given state.
func (h *harness) powerAgents(state string) {
	for _, f := range node.Families() {
		h.agents(f, handlers{
			opPowerGet: func(context.Context, *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
				return &rackbusv1.NodeReply{V: 1, PowerState: state}
			},
			opPowerSet: func(context.Context, *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
				return &rackbusv1.NodeReply{V: 1}
			},
		})
	}
}

func refusing(message string) bus.RequestHandler {
	return func(context.Context, *rackbusv1.NodeRequest) *rackbusv1.NodeReply {
		return &rackbusv1.NodeReply{V: 1, Error: &rackbusv1.NodeError{Code: "unauthenticated", Message: message}}
	}
}

func endpoint(ip string) *rackmanager.Endpoint {
	return &rackmanager.Endpoint{
		Interface: &rackmanager.NetworkInterface{IpAddress: ip, MacAddress: "02:00:00:00:00:01"},
		Credentials: &rackmanager.Credentials{Auth: &rackmanager.Credentials_UserPass{
			UserPass: &rackmanager.UsernamePassword{Username: "root", Password: plantedPassword},
		}},
	}
}

func compute(rack, id string) *rackmanager.NodeInfo {
	return typed(rack, id, rackmanager.NodeType_COMPUTE_GB200_NVIDIA)
}

func typed(rack, id string, t rackmanager.NodeType) *rackmanager.NodeInfo {
	n := &rackmanager.NodeInfo{NodeId: id, RackId: rack, Type: &t, BmcEndpoint: endpoint("10.0.0.1")}
	if typ, ok := node.ByNumber(int32(t)); ok && typ.Family == node.FamilySwitch {
		n.HostEndpoint = endpoint("10.0.1.1")
	}
	return n
}

func set(nodes ...*rackmanager.NodeInfo) *rackmanager.NodeSet {
	return &rackmanager.NodeSet{Nodes: nodes}
}

// register adds nodes and requires that all were taken.
func (h *harness) register(nodes ...*rackmanager.NodeInfo) {
	h.t.Helper()
	resp, err := h.rm.CreateNodes(h.t.Context(), &rackmanager.CreateNodesRequest{Nodes: set(nodes...)})
	require.NoError(h.t, err)
	requireSuccess(h.t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
}

// firmware writes a file below the firmware directory.
func (h *harness) firmware(name, content string) {
	h.t.Helper()
	path := filepath.Join(h.files, name)
	require.NoError(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(h.t, os.WriteFile(path, []byte(content), 0o644))
}

func requireSuccess(t *testing.T, got rackmanager.ReturnCode, message string) {
	t.Helper()
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_SUCCESS, got, message)
}

func requireFailure(t *testing.T, got rackmanager.ReturnCode) {
	t.Helper()
	require.Equal(t, rackmanager.ReturnCode_RETURN_CODE_FAILURE, got)
}

func requireCode(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, status.Code(err), err)
	require.Contains(t, err.Error(), text)
}

// with adds request metadata.
func with(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// fold takes events of one job into its record, and its parent's, the way a fold
// commit does.
func (h *harness) fold(id job.ID, events ...job.Event) job.Record {
	h.t.Helper()
	ctx := h.t.Context()
	r, rev, err := h.conn.Record(ctx, id)
	require.NoError(h.t, err)
	for _, e := range events {
		e.ID = id
		if e.At.IsZero() {
			e.At = time.Now()
		}
		r, _, err = job.Fold(r, e)
		require.NoError(h.t, err)
	}
	tx := h.conn.Begin()
	tx.ReplaceRecord(&r, rev)
	if parent, ok := r.ParentID(); ok {
		p, prev, err := h.conn.Record(ctx, parent)
		require.NoError(h.t, err)
		p, _ = job.ApplyChild(p, r, r.UpdatedAt)
		tx.ReplaceRecord(&p, prev)
	}
	if r.State.Terminal() && r.NodeID != "" {
		ref := node.Ref{RackID: r.RackID, NodeID: r.NodeID}
		lock, err := h.conn.Lock(ctx, ref)
		require.NoError(h.t, err)
		tx.FreeNode(ref, id, lock.Revision)
	}
	_, err = tx.Commit(ctx)
	require.NoError(h.t, err)
	return r
}

func started() job.Event {
	return job.Event{Kind: job.EventStarted, Epoch: 1, N: 1, Agent: "agent-1", Description: "Uploading"}
}

func finished(s job.State) job.Event {
	e := job.Event{Kind: job.EventFinished, Epoch: 1, N: 9, State: s}
	if s != job.StateCompleted {
		e.Failure = job.NewFailure(job.FailureTaskException, "the task ended with Exception")
		e.ResultJSON = `{"status":"failed","error_message":"the task ended with Exception"}`
	}
	return e
}

func parseID(t *testing.T, text string) job.ID {
	t.Helper()
	id, err := job.ParseID(text)
	require.NoError(t, err, text)
	return id
}

// admit starts a firmware batch on fresh nodes and returns parent and children.
func (h *harness) admit(rack string, n int) (parent job.ID, children []job.ID) {
	h.t.Helper()
	h.firmware("fw.pkg", "firmware")
	req := &rackmanager.BatchUpdateFirmwareRequest{
		Nodes: &rackmanager.NodeSet{}, FirmwareTargets: map[int32]*rackmanager.FirmwareTargetList{
			1: {Targets: []*rackmanager.FirmwareTarget{{Filename: "fw.pkg"}}},
		},
	}
	for i := range n {
		req.Nodes.Nodes = append(req.Nodes.Nodes, compute(rack, fmt.Sprintf("n%d", i)))
	}
	resp, err := h.rm.BatchUpdateFirmware(h.t.Context(), req)
	require.NoError(h.t, err)
	requireSuccess(h.t, resp.GetResponse().GetStatus(), resp.GetResponse().GetMessage())
	for _, j := range resp.GetJobs() {
		children = append(children, parseID(h.t, j.GetJobId()))
	}
	return parseID(h.t, resp.GetResponse().GetJobId()), children
}
