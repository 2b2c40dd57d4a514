// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// content gives n bytes that are the same for the same seed.
func content(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// request is what a server has seen.
type request struct {
	method, path, host string
	header             http.Header
}

// server serves one file, with faults.
type server struct {
	t *testing.T
	*httptest.Server

	mu       sync.Mutex
	body     []byte
	etag     string
	seen     []request
	statuses []int // first answers
	// cut ends the body after so many bytes, as often as told.
	cut, cuts int
	// announce replaces the length that is told.
	announce int
	noRange  bool
	// noIfRange gives a range of whatever the file is now.
	noIfRange bool
	redirect  string
	// hold keeps the body back until the client gives up.
	hold bool
}

func newServer(t *testing.T, body []byte) *server {
	t.Helper()
	s := &server{t: t, body: body, etag: `"one"`}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, request{r.Method, r.URL.RequestURI(), r.Host, r.Header.Clone()})
	if len(s.statuses) > 0 {
		status := s.statuses[0]
		s.statuses = s.statuses[1:]
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		return
	}
	if s.redirect != "" {
		http.Redirect(w, r, s.redirect, http.StatusFound)
		return
	}
	w.Header().Set("ETag", s.etag)
	body, status := s.body, http.StatusOK
	from, ranged := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	match := r.Header.Get("If-Range")
	if ranged && !s.noRange && (match == "" || match == s.etag || s.noIfRange) {
		at, err := strconv.Atoi(strings.TrimSuffix(from, "-"))
		require.NoError(s.t, err)
		if at >= len(body) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(body)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(body)-1, len(body)))
		body, status = body[at:], http.StatusPartialContent
	}
	n := len(body)
	if s.announce > 0 {
		n = s.announce
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	if s.hold {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	if s.cuts > 0 {
		s.cuts--
		_, _ = w.Write(body[:s.cut])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}

func (s *server) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.seen...)
}

func (s *server) change(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// quick are options for tests: loopback may be contacted, and waits are short.
func quick(change ...func(*Options)) Options {
	o := Options{
		Policy: Policy{Schemes: []string{"http", "https", "file"}, Addresses: loopback},
		Timing: Timing{Stall: 5 * time.Second, PauseMin: time.Millisecond, PauseMax: 2 * time.Millisecond, Attempts: 3, File: patience},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// rig fetches into a directory of its own.
type rig struct {
	t   *testing.T
	f   *Fetcher
	dir string
}

func newRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	dir := t.TempDir()
	o := quick(append([]func(*Options){func(o *Options) { o.Policy.FileDirs = []string{dir} }}, change...)...)
	r := &rig{t: t, f: New(o), dir: dir}
	t.Cleanup(r.f.Close)
	return r
}

func (r *rig) location(typ, location string) Location {
	r.t.Helper()
	l, err := Parse(typ, location)
	require.NoError(r.t, err)
	return l
}

func (r *rig) fetch(url string, change ...func(*Request)) (Result, error) {
	r.t.Helper()
	req := Request{Location: r.location("http", url), Dir: r.dir, Path: "prod/file.bin"}
	for _, c := range change {
		c(&req)
	}
	return r.f.Fetch(r.t.Context(), req)
}

func (r *rig) file() string { return filepath.Join(r.dir, "prod", "file.bin") }

// requireFile expects the file complete and nothing else beside it.
func (r *rig) requireFile(want []byte) {
	r.t.Helper()
	got, err := os.ReadFile(r.file())
	require.NoError(r.t, err)
	require.Equal(r.t, sha256.Sum256(want), sha256.Sum256(got))
	require.Equal(r.t, []string{"file.bin"}, r.names())
}

func (r *rig) names() []string {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "prod"))
	require.NoError(r.t, err)
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func want(b []byte) func(*Request) {
	sum := sha256.Sum256(b)
	return func(r *Request) { r.Want = sum[:] }
}

// nameServer answers every question for an address with the given ones.
func nameServer(t *testing.T, addresses ...string) *net.Resolver {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { serveNames(pc, addresses) })
	t.Cleanup(func() {
		require.NoError(t, pc.Close())
		wg.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", pc.LocalAddr().String())
	}}
}

// serveNames speaks as much DNS (RFC 1035) as is needed here.
func serveNames(pc net.PacketConn, addresses []string) {
	buf := make([]byte, 512)
	for {
		n, peer, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		q := buf[:n]
		end := 12
		for q[end] != 0 {
			end += int(q[end]) + 1
		}
		end += 5 // the root label, type and class
		answer := append([]byte(nil), q[:end]...)
		binary.BigEndian.PutUint16(answer[2:], 0x8180) // an answer without error
		binary.BigEndian.PutUint16(answer[10:], 0)     // no additional records
		count := uint16(0)
		if binary.BigEndian.Uint16(q[end-4:]) == 1 { // type A
			for _, a := range addresses {
				ip := netip.MustParseAddr(a).As4()
				answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				answer = append(answer, ip[:]...)
				count++
			}
		}
		binary.BigEndian.PutUint16(answer[6:], count)
		_, _ = pc.WriteTo(answer, peer)
	}
}
