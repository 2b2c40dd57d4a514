// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// cellOf returns what the overview shows of a node.
func cellOf(t *testing.T, body, rack, node string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, `id="`+elementID("c", rack, node)+`"`)
	require.True(t, ok, "no cell of %s in %s", node, body)
	cell, _, _ := strings.Cut(rest, "</li>")
	return cell
}

func TestRacksShowStatuses(t *testing.T) {
	s := newSite(t)
	older := update("j0", "tray-2", completed, 100)
	newer := update("j1", "tray-2", cancelled, 30)
	newer.CreatedAt = timestamppb.New(epoch.Add(time.Hour))
	stray := update("j3", "tray-9", failed, 40)
	s.put(older, newer, update("j2", "tray-1", running, 42), stray)
	var body string
	require.Eventually(t, func() bool {
		body = s.page("/")
		return strings.Contains(body, "42 %")
	}, 20*time.Second, 5*time.Millisecond)

	one := cellOf(t, body, "rack-1", "tray-1")
	require.Contains(t, one, "s-working")
	require.Contains(t, one, ": working</span>", "a status must be told in words")
	two := cellOf(t, body, "rack-1", "tray-2")
	require.Contains(t, two, "s-ok", "a cancelled run must not own the cell")
	require.Contains(t, two, `href="/jobs/j1"`, "but it must stay visible")
	require.Contains(t, two, "cancelled</a>")
	require.Contains(t, cellOf(t, body, "rack-1", "tray-3"), ": no history</span>")
	stranger := cellOf(t, body, "rack-1", "tray-9")
	require.Contains(t, stranger, "s-failed")
	require.Contains(t, stranger, "not registered")
	require.Contains(t, body, "1 failed, 1 working, 1 ok, 1 no history, 4 nodes")

	rack := s.page("/racks/rack-1")
	require.Contains(t, rack, "firmware_update.rack-1.tray-1")
	node := s.page("/racks/rack-1/nodes/tray-2")
	require.Contains(t, node, `href="/jobs/j0"`)
	require.Contains(t, node, "was cancelled, which says nothing about the node")
	for _, path := range []string{"/racks/none", "/racks/rack-1/nodes/none", "/jobs/none", "/nothing"} {
		resp, body := s.get(path)
		require.Equal(t, http.StatusNotFound, resp.StatusCode, path)
		require.Contains(t, body, "<h1", path)
	}
}

func TestManyRacksArePaged(t *testing.T) {
	s := newSite(t, func(o *Options) { o.RacksPerPage = 10 })
	s.racks, s.nodes = nil, nil
	for i := range 35 {
		rack := fmt.Sprintf("row-%d", i+1)
		s.racks = append(s.racks, rack)
		s.nodes = append(s.nodes, &rackmanager.NodeInventoryInfo{RackId: rack, NodeId: "tray", Type: rackmanager.NodeType_COMPUTE_GB300_NVIDIA})
	}
	bad := update("j1", "tray", failed, 10)
	bad.RackId = "row-33"
	s.put(bad)
	first := s.page("/")
	require.Equal(t, 10, strings.Count(first, `class="rack"`))
	require.Equal(t, 35, strings.Count(first, `<li id="t-`), "the map has all racks")
	require.Contains(t, first, `href="/?page=2"`)
	require.Less(t, strings.Index(first, ">row-2<"), strings.Index(first, ">row-10<"), "racks are in natural order")
	last := s.page("/?page=99")
	require.Equal(t, 5, strings.Count(last, `class="rack"`))
	require.Eventually(t, func() bool {
		body := s.page("/?show=failed")
		return strings.Count(body, `class="rack"`) == 1 && strings.Contains(body, "row-33")
	}, 20*time.Second, 5*time.Millisecond)
	require.Equal(t, 7, strings.Count(s.page("/?q=ROW-3"), `class="rack"`), "row-3, and row-30 to row-35")
}

func TestJobListFilters(t *testing.T) {
	s := newSite(t, func(o *Options) { o.PageSize = 2 })
	for i := range 3 {
		s.put(update(fmt.Sprintf("j%d", i), "tray-1", completed, 100))
	}
	s.put(update("j9", "tray-2", running, 5))
	body := s.page("/jobs")
	require.Contains(t, body, "j9")
	require.Contains(t, body, `href="/jobs?after=2"`)
	require.NotContains(t, s.page("/jobs?after=2"), "j9")
	body = s.page("/jobs?state=active&type=firmware_update&rack=rack-1&since=1h")
	require.Contains(t, body, "j9")
	require.NotContains(t, body, "j2<")
	f := s.filters[len(s.filters)-1]
	require.Equal(t, []rackbusv1.JobState{queued, running, stopping}, f.GetStates())
	require.Equal(t, []string{"firmware_update"}, f.GetTypes())
	require.Equal(t, "rack-1", f.GetRackId())
	require.True(t, f.GetTopLevelOnly())
	require.WithinDuration(t, time.Now().Add(-time.Hour), f.GetCreatedSince().AsTime(), time.Minute)
	require.Contains(t, body, `<option value="active" selected>`, "a form shows its filter")

	s.page("/jobs?node=tray-2&since=2026-11-30T01:00:00Z")
	f = s.filters[len(s.filters)-1]
	require.False(t, f.GetTopLevelOnly(), "most jobs of a node belong to a batch")
	require.Equal(t, epoch, f.GetCreatedSince().AsTime())
	for _, query := range []string{"state=lost", "since=yesterday"} {
		resp, _ := s.get("/jobs?" + query)
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, query)
	}
}

func TestJobPage(t *testing.T) {
	s := newSite(t)
	parent := &rackbusv1.Job{
		JobId: "p", Name: "weekly", Type: "firmware_update", Kind: rackbusv1.JobKind_JOB_KIND_PARENT, RackId: "rack-1",
		State: running, Percent: 50, ChildrenTotal: 3, Children: &rackbusv1.JobCounts{Completed: 1, Failed: 1, Running: 1},
		CreatedAt: timestamppb.New(epoch),
		Rollout: &rackbusv1.Rollout{
			Plan: &rackbusv1.RolloutPlan{WaveSize: 2}, State: rackbusv1.RolloutState_ROLLOUT_STATE_HELD, Wave: 1, Released: []byte{0b11},
			Reason: "after <lunch>",
		},
	}
	child := update("c1", "tray-1", failed, 40)
	child.ParentJobId = "p"
	child.Failure = &rackbusv1.JobFailure{
		FailureCode: "TASK_EXCEPTION", Message: "the task ended in Exception", Phase: "flash",
		Device: &rackbusv1.DeviceAnswer{MessageId: "Update.1.0.TransferFailed", Message: "<script>alert(1)</script>", Resolution: "Retry"},
	}
	child.Stages = []*rackbusv1.JobStage{
		{Name: "upload", Status: rackbusv1.StageStatus_STAGE_STATUS_COMPLETED, StartedAt: timestamppb.New(epoch), FinishedAt: timestamppb.New(epoch.Add(10 * time.Second))},
		{Name: "flash", Status: rackbusv1.StageStatus_STAGE_STATUS_FAILED, StartedAt: timestamppb.New(epoch.Add(10 * time.Second)), FinishedAt: timestamppb.New(epoch.Add(40 * time.Second)), Message: "exception"},
		{Name: "verify", Status: rackbusv1.StageStatus_STAGE_STATUS_QUEUED},
	}
	child.ResultJson = `{"a":1}`
	s.put(parent, child)
	s.events = []*rackbusv1.JobHistoryEntry{{At: timestamppb.New(epoch), Kind: "started", State: running, Description: "first"}}

	body := s.page("/jobs/p")
	require.Contains(t, body, `data-count="completed"`)
	require.Contains(t, body, "held: waits for somebody to resume it")
	require.Contains(t, body, "2 of 3 nodes")
	require.Contains(t, body, "after &lt;lunch&gt;")
	require.Contains(t, body, `href="/jobs/c1"`)
	for _, word := range []string{"resume", "abort", "cancel", "terminate"} {
		require.Contains(t, body, "/jobs/p/do/"+word)
	}
	require.NotContains(t, body, "/jobs/p/do/pause", "a rollout that is held cannot be paused")

	body = s.page("/jobs/c1")
	require.Contains(t, body, `href="/help#TASK_EXCEPTION"`)
	require.Contains(t, body, "task ended unsuccessfully")
	require.Contains(t, body, "Update.1.0.TransferFailed")
	require.NotContains(t, body, "<script>alert", "what devices say is text")
	require.Contains(t, body, `<rect class="f-ok" x="0" y="1" width="250" height="8">`)
	require.Contains(t, body, `<rect class="f-failed" x="250" y="1" width="750" height="8">`)
	require.Contains(t, body, "not begun")
	require.Contains(t, body, "&#34;a&#34;: 1")
	require.Contains(t, body, ">weekly</a>", "a child names its batch")
	require.Contains(t, body, "/jobs/c1/do/diagnose")
	require.NotContains(t, body, "/jobs/c1/do/cancel", "what has ended cannot be cancelled")
	require.Contains(t, s.page("/help"), `id="TASK_EXCEPTION"`)
}

func TestEvidenceIsAFreshLink(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", failed, 10))
	for id, kind := range map[string]rackbusv1.JobKind{"d0": rackbusv1.JobKind_JOB_KIND_PARENT, "d1": rackbusv1.JobKind_JOB_KIND_LEAF} {
		d := update(id, "tray-1", completed, 100)
		d.Kind, d.AboutJobId = kind, "j1"
		d.NodeDiagnostics = &rackbusv1.NodeDiagnostics{FailureSignature: "FLASH_WORN"}
		s.put(d)
	}
	body := s.page("/jobs/j1")
	require.Contains(t, body, `href="/jobs/j1/evidence"`)
	require.Contains(t, body, "<code>FLASH_WORN</code>")
	require.Contains(t, body, `href="/jobs/d1"`)
	require.NotContains(t, body, `href="/jobs/d0"`)
	s.evidence = &rackbusv1.GetEvidenceResponse{
		Status: rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE, Url: "https://api.example:8803/evidence/x?sig=1",
		Filename: "bundle.tar.gz", SizeBytes: 2048, ExpiresAt: timestamppb.New(epoch), JobId: "d1",
	}
	var resp answer
	resp, body = s.get("/jobs/j1/evidence")
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	require.Contains(t, body, `href="https://api.example:8803/evidence/x?sig=1"`)
	require.Contains(t, body, "2.0 KiB")
	require.Contains(t, body, `href="/jobs/d1"`)
	s.evidence = &rackbusv1.GetEvidenceResponse{Status: rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, Reason: "not written yet"}
	require.Contains(t, s.page("/jobs/j1/evidence"), "not written yet")
}

// TestEvidenceOfABatch: the page of a failed batch leads to its diagnosis, and that to a
// bundle for each node.
func TestEvidenceOfABatch(t *testing.T) {
	s := newSite(t)
	batch, diagnosis := update("p", "", failed, 100), update("d", "", completed, 100)
	for _, j := range []*rackbusv1.Job{batch, diagnosis} {
		j.Kind = rackbusv1.JobKind_JOB_KIND_PARENT
	}
	diagnosis.Type, diagnosis.AboutJobId, diagnosis.Name = "node_diagnostics", "p", "what was wrong"
	s.put(batch, diagnosis)
	s.evidence = &rackbusv1.GetEvidenceResponse{
		Status: rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, Reason: "ask for one of them",
		Runs: []*rackbusv1.EvidenceRun{{JobId: "d1", RackId: "rack-1", NodeId: "tray-1", Stored: true}, {JobId: "d2", RackId: "rack-1", NodeId: "tray-2"}},
	}
	body := s.page("/jobs/p")
	require.Contains(t, body, "what was wrong")
	require.Contains(t, body, `href="/jobs/p/evidence"`)
	require.Contains(t, s.page("/jobs/d"), `href="/jobs/d/evidence"`)
	body = s.page("/jobs/d/evidence")
	require.Contains(t, body, `href="/jobs/d1/evidence"`)
	require.Contains(t, body, "rack-1 / tray-2")
	require.NotContains(t, body, `href="/jobs/d2/evidence"`, "it has none")
}

func TestPagesAreHardened(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", running, 10))
	for _, path := range []string{"/", "/jobs", "/jobs/j1", "/help", "/jobs/j1/do/cancel"} {
		resp, body := s.get(path)
		h := resp.Header
		require.Contains(t, h.Get("Content-Security-Policy"), "default-src 'none'")
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe")
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", h.Get("Cache-Control"))
		require.NotContains(t, body, "<style")
		require.NotContains(t, body, " style=")
		require.NotContains(t, body, " onclick=")
		require.Equal(t, 1, strings.Count(body, "<script"))
		require.NotContains(t, body, "http://")
		require.Contains(t, body, "spiffe://lab/&lt;ann&gt;")
		require.Equal(t, 1, strings.Count(body, "<h1"), path)
	}
	for _, file := range []string{"console.css", "console.js", "icon.svg"} {
		address, err := s.console.assets.url(file)
		require.NoError(t, err)
		resp, body := s.get(address)
		require.Contains(t, resp.Header.Get("Cache-Control"), "immutable")
		require.NotContains(t, body, "https://", "nothing comes from elsewhere")
		resp, _ = s.get("/static/" + file)
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	}
	resp, _ := s.get("/static/doc.go")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)
}

func TestWhoHasNoRoleSeesNothing(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", running, 10))
	for _, tt := range []struct {
		role   rackbusv1.Role
		denied error
		want   int
		text   string
	}{
		{rackbusv1.Role_ROLE_UNSPECIFIED, nil, http.StatusForbidden, "gives you no role here"},
		{rackbusv1.Role_ROLE_VIEWER, status.Error(codes.PermissionDenied, "no"), http.StatusForbidden, "no role here"},
		{rackbusv1.Role_ROLE_VIEWER, status.Error(codes.Unauthenticated, "no"), http.StatusUnauthorized, "openssl pkcs12"},
		{rackbusv1.Role_ROLE_VIEWER, status.Error(codes.Unavailable, "no bus"), http.StatusServiceUnavailable, "no bus"},
	} {
		s.mu.Lock()
		s.role, s.denied = tt.role, tt.denied
		s.mu.Unlock()
		for _, path := range []string{"/", "/jobs", "/jobs/j1", "/help", "/live/racks", "/live/jobs/j1", "/jobs/j1/evidence"} {
			resp, body := s.get(path)
			require.Equal(t, tt.want, resp.StatusCode, path)
			require.Contains(t, body, tt.text)
			require.NotContains(t, body, "tray-1")
		}
	}
}
