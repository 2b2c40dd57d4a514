// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend plays the API by a script, over real gRPC.
type backend struct {
	rackbusv1.UnimplementedJobsServer
	rackbusv1.UnimplementedAccessServer
	rackmanager.UnimplementedRackManagerServer

	mu       sync.Mutex
	role     rackbusv1.Role
	denied   error
	jobs     []*rackbusv1.Job // in the order of their last change
	versions []int
	version  int
	changed  chan struct{}
	floor    int // tokens before it are too old
	cut      chan struct{}
	nodes    []*rackmanager.NodeInventoryInfo
	racks    []string
	events   []*rackbusv1.JobHistoryEntry
	// historyLimit is how many events one answer has, historyUnread how many others the
	// API cannot read; eventsRead is how many each answer had.
	historyLimit  int
	historyUnread uint32
	eventsRead    []int
	historyFault  error
	calls         []string
	filters       []*rackbusv1.JobFilter
	evidence      *rackbusv1.GetEvidenceResponse
	fault         error // of every mutating call
	watches       int
}

func (b *backend) WhoAmI(context.Context, *rackbusv1.WhoAmIRequest) (*rackbusv1.WhoAmIResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.denied != nil {
		return nil, b.denied
	}
	return &rackbusv1.WhoAmIResponse{Identity: "spiffe://lab/<ann>", Role: b.role}, nil
}

// put gives a job a new state and tells the watchers.
func (b *backend) put(jobs ...*rackbusv1.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range jobs {
		if i := slices.IndexFunc(b.jobs, func(o *rackbusv1.Job) bool { return o.GetJobId() == j.GetJobId() }); i >= 0 {
			b.jobs, b.versions = slices.Delete(b.jobs, i, i+1), slices.Delete(b.versions, i, i+1)
		}
		b.version++
		b.jobs, b.versions = append(b.jobs, proto.CloneOf(j)), append(b.versions, b.version)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *backend) WatchJobs(req *rackbusv1.WatchJobsRequest, stream grpc.ServerStreamingServer[rackbusv1.WatchJobsResponse]) error {
	b.mu.Lock()
	after := 0
	if token := req.GetResumeToken(); token != "" {
		after, _ = strconv.Atoi(token)
		if after < b.floor {
			b.mu.Unlock()
			return status.Error(codes.FailedPrecondition, "too old")
		}
	}
	b.watches++
	cut := b.cut
	b.mu.Unlock()
	for first := true; ; first = false {
		b.mu.Lock()
		var send []*rackbusv1.WatchJobsResponse
		for i, j := range b.jobs {
			if b.versions[i] > after {
				send = append(send, &rackbusv1.WatchJobsResponse{Job: proto.CloneOf(j), ResumeToken: strconv.Itoa(b.versions[i])})
			}
		}
		after = b.version
		if first {
			send = append(send, &rackbusv1.WatchJobsResponse{SnapshotComplete: true, ResumeToken: strconv.Itoa(after)})
		}
		changed := b.changed
		b.mu.Unlock()
		for _, m := range send {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-cut:
			return status.Error(codes.Unavailable, "gone for a moment")
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (b *backend) ListJobs(_ context.Context, req *rackbusv1.ListJobsRequest) (*rackbusv1.ListJobsResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := req.GetFilter()
	b.filters = append(b.filters, f)
	from, _ := strconv.Atoi(req.GetPageToken())
	resp := &rackbusv1.ListJobsResponse{}
	n := 0
	for _, j := range slices.Backward(b.jobs) {
		switch {
		case f.GetRackId() != "" && f.GetRackId() != j.GetRackId(),
			f.GetNodeId() != "" && f.GetNodeId() != j.GetNodeId(),
			f.GetTopLevelOnly() && j.GetParentJobId() != "",
			f.GetParentJobId() != "" && f.GetParentJobId() != j.GetParentJobId(),
			f.GetAboutJobId() != "" && f.GetAboutJobId() != j.GetAboutJobId(),
			len(f.GetTypes()) > 0 && !slices.Contains(f.GetTypes(), j.GetType()),
			len(f.GetStates()) > 0 && !slices.Contains(f.GetStates(), j.GetState()):
			continue
		}
		n++
		if n <= from {
			continue
		}
		if len(resp.GetJobs()) == int(req.GetPageSize()) {
			resp.NextPageToken = strconv.Itoa(n - 1)
			break
		}
		resp.Jobs = append(resp.Jobs, proto.CloneOf(j))
	}
	return resp, nil
}

func (b *backend) find(id string) (*rackbusv1.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, j := range b.jobs {
		if j.GetJobId() == id {
			return proto.CloneOf(j), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "job %s not found", id)
}

func (b *backend) GetJob(_ context.Context, req *rackbusv1.GetJobRequest) (*rackbusv1.GetJobResponse, error) {
	j, err := b.find(req.GetJobId())
	return &rackbusv1.GetJobResponse{Job: j}, err
}

func (b *backend) GetJobEvents(_ context.Context, req *rackbusv1.GetJobEventsRequest) (*rackbusv1.GetJobEventsResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	resp := &rackbusv1.GetJobEventsResponse{}
	for _, e := range b.events {
		if e.GetSequence() > req.GetAfterSequence() || e.GetSequence() == 0 {
			resp.Events = append(resp.Events, e)
		}
	}
	if n := len(resp.Events) - b.historyLimit; b.historyLimit > 0 && n > 0 {
		resp.Events, resp.Omitted = resp.Events[n:], uint32(n)
	}
	resp.Omitted += b.historyUnread
	b.eventsRead = append(b.eventsRead, len(resp.Events))
	return resp, b.historyFault
}

// change notes a call that changes something. Like the API it asks for a role.
func (b *backend) change(call string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.role < rackbusv1.Role_ROLE_OPERATOR {
		return status.Error(codes.PermissionDenied, "needs the role operator")
	}
	b.calls = append(b.calls, call)
	return b.fault
}

func (b *backend) CancelJob(_ context.Context, req *rackbusv1.CancelJobRequest) (*rackbusv1.CancelJobResponse, error) {
	return &rackbusv1.CancelJobResponse{}, b.change(fmt.Sprintf("CancelJob %s %s %q", req.GetJobId(), req.GetMode(), req.GetReason()))
}

func (b *backend) PauseRollout(_ context.Context, req *rackbusv1.PauseRolloutRequest) (*rackbusv1.PauseRolloutResponse, error) {
	return &rackbusv1.PauseRolloutResponse{}, b.change(fmt.Sprintf("PauseRollout %s %q", req.GetJobId(), req.GetReason()))
}

func (b *backend) ResumeRollout(_ context.Context, req *rackbusv1.ResumeRolloutRequest) (*rackbusv1.ResumeRolloutResponse, error) {
	return &rackbusv1.ResumeRolloutResponse{}, b.change("ResumeRollout " + req.GetJobId())
}

func (b *backend) AbortRollout(_ context.Context, req *rackbusv1.AbortRolloutRequest) (*rackbusv1.AbortRolloutResponse, error) {
	return &rackbusv1.AbortRolloutResponse{}, b.change(fmt.Sprintf("AbortRollout %s %q", req.GetJobId(), req.GetReason()))
}

func (b *backend) StartNodeDiagnostics(_ context.Context, req *rackbusv1.StartNodeDiagnosticsRequest) (*rackbusv1.StartNodeDiagnosticsResponse, error) {
	return &rackbusv1.StartNodeDiagnosticsResponse{JobId: "diagnosis"}, b.change("StartNodeDiagnostics " + req.GetAboutJobId())
}

func (b *backend) GetEvidence(context.Context, *rackbusv1.GetEvidenceRequest) (*rackbusv1.GetEvidenceResponse, error) {
	return b.evidence, nil
}

func (b *backend) ListRacks(context.Context, *rackmanager.ListRacksRequest) (*rackmanager.ListRacksResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &rackmanager.ListRacksResponse{RackIds: b.racks}, nil
}

func (b *backend) ListNodeInventory(context.Context, *rackmanager.ListNodeInventoryRequest) (*rackmanager.ListNodeInventoryResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &rackmanager.ListNodeInventoryResponse{Nodes: b.nodes}, nil
}

// site is a console over a scripted backend, as a browser sees it.
type site struct {
	*backend
	t       *testing.T
	console *Console
	server  *httptest.Server
	client  *http.Client
}

func newSite(t *testing.T, change ...func(*Options)) *site {
	t.Helper()
	b := &backend{role: rackbusv1.Role_ROLE_OPERATOR, changed: make(chan struct{}), cut: make(chan struct{}), racks: []string{"rack-1"}}
	for i := range 3 {
		b.nodes = append(b.nodes, &rackmanager.NodeInventoryInfo{
			RackId: "rack-1", NodeId: fmt.Sprintf("tray-%d", i+1), Type: rackmanager.NodeType_COMPUTE_GB200_NVIDIA,
		})
	}
	lis := bufconn.Listen(1 << 20)
	g := grpc.NewServer()
	rackbusv1.RegisterJobsServer(g, b)
	rackbusv1.RegisterAccessServer(g, b)
	rackmanager.RegisterRackManagerServer(g, b)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	conn, err := grpc.NewClient("passthrough:///backend", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	require.NoError(t, err)
	opts := Options{
		Conn: conn, Logger: slog.New(slog.DiscardHandler),
		Timing: Timing{WatchRetry: 5 * time.Millisecond, PatchInterval: 5 * time.Millisecond, InventoryAge: time.Millisecond},
	}
	for _, c := range change {
		c(&opts)
	}
	c, err := New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	s := &site{backend: b, t: t, console: c, server: httptest.NewServer(c), client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	t.Cleanup(func() {
		c.EndStreams()
		s.client.CloseIdleConnections()
		s.server.Close()
		cancel()
		wg.Wait()
		require.NoError(t, conn.Close())
		g.Stop()
		require.NoError(t, <-served)
	})
	return s
}

// answer is what came back, without the body.
type answer struct {
	StatusCode int
	Header     http.Header
	Cookies    []*http.Cookie
}

// do sends a request and returns its answer with the body as text.
func (s *site) do(r *http.Request) (answer, string) {
	s.t.Helper()
	resp, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return answer{resp.StatusCode, resp.Header, resp.Cookies()}, string(body)
}

func (s *site) get(path string) (answer, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.server.URL+path, nil)
	require.NoError(s.t, err)
	return s.do(r)
}

// page is get for what must be there.
func (s *site) page(path string) string {
	s.t.Helper()
	resp, body := s.get(path)
	require.Equal(s.t, http.StatusOK, resp.StatusCode, body)
	return body
}

func (s *site) post(path string, form url.Values, cookies []*http.Cookie, headers ...string) (answer, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.server.URL+path, strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	return s.do(r)
}

var tokenPattern = regexp.MustCompile(`name="token" value="([^"]+)"`)

// confirm opens the page that asks, and returns what its form sends.
func (s *site) confirm(path string) (url.Values, []*http.Cookie) {
	s.t.Helper()
	resp, body := s.get(path)
	require.Equal(s.t, http.StatusOK, resp.StatusCode, body)
	found := tokenPattern.FindStringSubmatch(body)
	require.NotNil(s.t, found, body)
	return url.Values{"token": {found[1]}}, resp.Cookies
}

// update is a firmware update of one tray.
func update(id, tray string, state rackbusv1.JobState, percent uint32) *rackbusv1.Job {
	j := &rackbusv1.Job{
		JobId: id, Name: "firmware_update.rack-1." + tray, Type: "firmware_update", Kind: rackbusv1.JobKind_JOB_KIND_LEAF,
		RackId: "rack-1", NodeId: tray, State: state, Percent: percent, StateDescription: "Writing the image",
		CreatedAt: timestamppb.New(epoch), UpdatedAt: timestamppb.New(epoch),
	}
	if state != queued {
		j.StartedAt = timestamppb.New(epoch.Add(time.Second))
	}
	if terminal(state) {
		j.FinishedAt = timestamppb.New(epoch.Add(time.Minute))
	}
	return j
}
