// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/bus/broker/brokertest"
	"github.com/rackbus/rackbus/pkg/bus/bustest"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/api/internal/evidence"
)

const testLinkKey = "0123456789abcdef0123456789abcdef"

// linked gives servers a key, and a listener at base.
func linked(base string) func(*Options) {
	return func(o *Options) { o.LinkKey, o.EvidenceBaseURL = secret.New(testLinkKey), base }
}

// web serves the links of whatever server the harness has.
func (h *harness) web() *httptest.Server {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.server.evidenceHandler().ServeHTTP(w, r)
	}))
	h.t.Cleanup(srv.Close)
	return srv
}

// leave stores a bundle as an agent does.
func (h *harness) leave(id job.ID, content []byte) {
	h.t.Helper()
	ctx := h.t.Context()
	e, err := h.conn.PutEvidence(ctx, bus.EvidenceBundle(id), bytes.NewReader(content))
	require.NoError(h.t, err)
	raw, err := json.Marshal(diagnostics.Manifest{
		Version: 1, JobID: id.String(), Bundle: &diagnostics.ManifestBundle{
			Filename: diagnostics.Filename("r1", "n0", id), ContentType: diagnostics.BundleType, Size: e.Size,
			SHA256: hex.EncodeToString(e.Digest[:]), WrittenAt: e.StoredAt,
		},
	})
	require.NoError(h.t, err)
	_, err = h.conn.PutEvidence(ctx, bus.EvidenceManifest(id), bytes.NewReader(raw))
	require.NoError(h.t, err)
}

func noise(n int) []byte {
	b, err := io.ReadAll(io.LimitReader(rand.NewChaCha8([32]byte{1}), int64(n)))
	if err != nil {
		panic(err) // it has no end
	}
	return b
}

func (h *harness) evidence(id job.ID) *rackbusv1.GetEvidenceResponse {
	h.t.Helper()
	resp, err := h.jobs.GetEvidence(h.t.Context(), &rackbusv1.GetEvidenceRequest{JobId: id.String()})
	require.NoError(h.t, err)
	return resp
}

// fetched is an answer to a request for a link.
type fetched struct {
	status int
	header http.Header
	length int64
	body   []byte
}

func fetch(t *testing.T, method, link string) fetched {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, link, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return fetched{resp.StatusCode, resp.Header, resp.ContentLength, body}
}

// examined registers a node and starts its diagnosis.
func (h *harness) examined() (failed, diagnosis job.ID) {
	h.t.Helper()
	h.register(compute("r1", "n0"))
	_, children := h.admit("r1", 1)
	h.fold(children[0], started(), finished(job.StateFailed))
	resp, err := h.diagnose(children[0])
	require.NoError(h.t, err)
	return children[0], parseID(h.t, resp.GetJobId()).Child(1)
}

// TestBundleSurvivesRestart is: a bundle survives a restart; a truncated, expired or
// forged link is refused. Broker and API are started anew between the link and its
// use.
func TestBundleSurvivesRestart(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	web := h.web()
	h.stop()
	h.start(linked(web.URL))
	failed, id := h.examined()

	resp := h.evidence(id)
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, resp.GetStatus())
	require.Equal(t, reasonNotWritten, resp.GetReason())
	content := noise(3<<20 + 17)
	_, err := h.conn.PutEvidence(t.Context(), bus.EvidenceBundle(id), bytes.NewReader(content))
	require.NoError(t, err)
	require.Equal(t, reasonNotWritten, h.evidence(id).GetReason(), "without its manifest a bundle is not whole")
	h.leave(id, content)

	before := time.Now()
	resp = h.evidence(id)
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE, resp.GetStatus(), resp.GetReason())
	require.Equal(t, id.String(), resp.GetJobId())
	require.Equal(t, "application/gzip", resp.GetContentType())
	require.Equal(t, int64(len(content)), resp.GetSizeBytes())
	require.WithinDuration(t, before.Add(10*time.Minute), resp.GetExpiresAt().AsTime(), time.Minute)
	require.True(t, strings.HasPrefix(resp.GetUrl(), web.URL+"/evidence/"+id.String()+"/"+resp.GetFilename()+"?"), resp.GetUrl())
	for _, asked := range []job.ID{failed, id.Parent()} {
		require.Eventually(t, func() bool { return h.evidence(asked).GetJobId() == id.String() }, 20*time.Second, 5*time.Millisecond)
	}

	// Everything but the store and the key is new.
	h.stop()
	port, err := strconv.Atoi(h.broker.URL()[strings.LastIndexByte(h.broker.URL(), ':')+1:])
	require.NoError(t, err)
	h.broker.Close()
	h.broker = brokertest.StartIn(t, h.store, port)
	h.conn = h.connect("test")
	h.start(linked(web.URL))

	got := fetch(t, http.MethodGet, resp.GetUrl())
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, content, got.body)
	sum := sha256.Sum256(got.body)
	require.Equal(t, sum[:], resp.GetSha256())
	require.Equal(t, "application/gzip", got.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename="`+resp.GetFilename()+`"`, got.header.Get("Content-Disposition"))
	require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
	require.Equal(t, "no-store", got.header.Get("Cache-Control"))
	got = fetch(t, http.MethodHead, resp.GetUrl())
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, int64(len(content)), got.length)
	require.Empty(t, got.body)
	require.NotContains(t, h.log.String(), resp.GetUrl()[strings.Index(resp.GetUrl(), "signature=")+10:], "a link does not show in the log")

	h.refused(resp.GetUrl(), id)
}

// refused tries everything that is not the link as it was given out.
func (h *harness) refused(link string, id job.ID) {
	t := h.t
	u, err := url.Parse(link)
	require.NoError(t, err)
	base := strings.TrimSuffix(link, u.RequestURI())
	query := func(change func(url.Values)) string {
		q := u.Query()
		change(q)
		return base + u.Path + "?" + q.Encode()
	}
	signer := evidence.NewSigner(secret.New(testLinkKey))
	name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	signed := func(l evidence.Link) string { return signer.URL(base, l) }
	signature := u.Query().Get("signature")
	later := strconv.FormatInt(time.Now().Add(time.Hour).Unix(), 10)
	for what, c := range map[string]struct {
		method, link string
		status       int
	}{
		"expired":              {"GET", signed(evidence.Link{Job: id, Filename: name, Expires: time.Now().Add(-time.Second)}), http.StatusGone},
		"longer validity":      {"GET", query(func(q url.Values) { q.Set("expires", later) }), http.StatusForbidden},
		"other signature":      {"GET", query(func(q url.Values) { q.Set("signature", strings.Repeat("A", len(signature))) }), http.StatusForbidden},
		"cut signature":        {"GET", query(func(q url.Values) { q.Set("signature", signature[:20]) }), http.StatusForbidden},
		"empty signature":      {"GET", query(func(q url.Values) { q.Set("signature", "") }), http.StatusForbidden},
		"something added":      {"GET", query(func(q url.Values) { q.Set("more", "1") }), http.StatusForbidden},
		"signature twice":      {"GET", query(func(q url.Values) { q.Add("signature", signature) }), http.StatusBadRequest},
		"cut in the signature": {"GET", link[:len(link)-1], http.StatusForbidden},
		"cut before it":        {"GET", base + u.Path + "?expires=" + u.Query().Get("expires"), http.StatusBadRequest},
		"cut in the query":     {"GET", base + u.Path + "?exp", http.StatusBadRequest},
		"cut before the query": {"GET", base + u.Path, http.StatusBadRequest},
		"cut in the name":      {"GET", base + u.Path[:len(u.Path)-3] + "?" + u.RawQuery, http.StatusForbidden},
		"cut in the id":        {"GET", base + u.Path[:30] + "?" + u.RawQuery, http.StatusBadRequest},
		"odd expiry":           {"GET", query(func(q url.Values) { q.Set("expires", "0x10") }), http.StatusBadRequest},
		"another job":          {"GET", strings.Replace(link, id.String(), id.Parent().String(), 1), http.StatusForbidden},
		"path in the name":     {"GET", strings.Replace(link, "diagnostics_", "..%2Fx", 1), http.StatusBadRequest},
		"a change":             {"POST", link, http.StatusMethodNotAllowed},
		"nothing written":      {"GET", signed(evidence.Link{Job: id.Parent(), Filename: name, Expires: time.Now().Add(time.Hour)}), http.StatusNotFound},
		"another file":         {"GET", signed(evidence.Link{Job: id, Filename: "x.tar.gz", Expires: time.Now().Add(time.Hour)}), http.StatusNotFound},
		"another key": {"GET", evidence.NewSigner(secret.New(strings.Repeat("k", 32))).URL(base,
			evidence.Link{Job: id, Filename: name, Expires: time.Now().Add(time.Hour)}), http.StatusForbidden},
	} {
		got := fetch(t, c.method, c.link)
		require.Equal(t, c.status, got.status, "%s: %s", what, got.body)
		require.Less(t, len(got.body), 200, what)
		require.Equal(t, "no-store", got.header.Get("Cache-Control"), what)
	}
}

// TestSpoiltBundleIsNotGivenOut ends a download whose last part is not what was
// stored: the client does not get a whole file.
func TestSpoiltBundleIsNotGivenOut(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	web := h.web()
	h.stop()
	h.start(linked(web.URL))
	_, id := h.examined()
	content := noise(2 << 20)
	h.leave(id, content)
	link := h.evidence(id).GetUrl()
	h.server.evidence = evidence.NewHandler(spoiling{h.conn}, h.server.links, prometheus.NewRegistry(), h.server.log)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, link, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, len(body), len(content))
}

// spoiling changes the last byte of everything but manifests.
type spoiling struct{ *bus.Conn }

func (s spoiling) ReadEvidence(ctx context.Context, e bus.Evidence, w io.Writer) error {
	if strings.HasSuffix(e.Name.String(), "manifest.json") {
		return s.Conn.ReadEvidence(ctx, e, w)
	}
	e.Digest[0] ^= 1
	return s.Conn.ReadEvidence(ctx, e, w)
}

// TestNoLinkWithoutKeyOrListener says why there is none.
func TestNoLinkWithoutKeyOrListener(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	failed, id := h.examined()
	h.leave(id, []byte("bundle"))
	require.Nil(t, h.server.evidenceHandler())
	require.Equal(t, reasonNoKey, h.evidence(id).GetReason())
	h.stop()
	h.start(linked(""))
	resp := h.evidence(id)
	require.Equal(t, reasonNoListener, resp.GetReason())
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, resp.GetStatus())
	require.Empty(t, resp.GetUrl())
	require.NotEmpty(t, resp.GetFilename())

	_, err := h.jobs.GetEvidence(t.Context(), &rackbusv1.GetEvidenceRequest{})
	requireCode(t, err, codes.InvalidArgument, "job_id is required")
	_, err = h.jobs.GetEvidence(t.Context(), &rackbusv1.GetEvidenceRequest{JobId: failed.Child(77).String()})
	requireCode(t, err, codes.NotFound, "not found")
	_, others := h.admit("r2", 1)
	require.Contains(t, h.evidence(others[0]).GetReason(), "no diagnosis has looked into job")

	h.register(compute("r1", "n1"), compute("r1", "n2"))
	two, err := h.diagnose(job.ID{}, "n1", "n2")
	require.NoError(t, err)
	batch := parseID(t, two.GetJobId())
	h.leave(batch.Child(2), []byte("bundle"))
	withBundle := finished(job.StateCompleted)
	withBundle.Diagnostics = &job.Diagnostics{FailureSignature: "NO_FAULT_FOUND", Evidence: &job.EvidenceBundle{Filename: "x"}}
	h.fold(batch.Child(2), started(), withBundle)
	listed := h.evidence(batch)
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, listed.GetStatus())
	require.Contains(t, listed.GetReason(), "ask for one of its children, such as "+batch.Child(1).String())
	require.Len(t, listed.GetRuns(), 2)
	for i, want := range []struct {
		node   string
		stored bool
	}{{"n1", false}, {"n2", true}} {
		run := listed.GetRuns()[i]
		require.Equal(t, batch.Child(uint32(i)+1).String(), run.GetJobId())
		require.Equal(t, "r1/"+want.node, run.GetRackId()+"/"+run.GetNodeId())
		require.Equal(t, want.stored, run.GetStored())
	}

	raw, err := bustest.Open(h.broker.URL())
	require.NoError(t, err)
	t.Cleanup(raw.Close)
	require.NoError(t, raw.DropStream(t.Context(), "OBJ_rb_evidence"))
	h.server.opts.Timing.BrokerLimit = 300 * time.Millisecond
	resp = h.evidence(id)
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, resp.GetStatus())
	require.Equal(t, reasonUnreadable, resp.GetReason())
}

// TestEvidenceOfTheJobsOwnNode: with several nodes looked at because of one job, its
// evidence is that of its own node.
func TestEvidenceOfTheJobsOwnNode(t *testing.T) {
	t.Parallel()
	h := newHarness(t, linked("http://127.0.0.1:1"))
	h.register(compute("r1", "n0"), compute("r1", "n1"), compute("r1", "n2"))
	_, children := h.admit("r1", 1)
	h.fold(children[0], started(), finished(job.StateFailed))
	resp, err := h.diagnose(children[0], "n1", "n0", "n2")
	require.NoError(t, err)
	batch := parseID(t, resp.GetJobId())
	for i := range uint32(3) {
		h.leave(batch.Child(i+1), []byte("bundle"))
	}
	for _, asked := range []job.ID{children[0], children[0], batch.Child(2)} {
		require.Eventually(t, func() bool { return h.evidence(asked).GetJobId() == batch.Child(2).String() }, 20*time.Second, 5*time.Millisecond)
	}
}
