// SPDX-License-Identifier: Apache-2.0

// Package exchange serves HTTP requests to simulated devices: it applies the fault rules around a device's own answer
// and records what was asked.
package exchange

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/internal/mergepatch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// drainLimit is how much of an unread request body is received after all, in bytes, so that small ones count as
// complete and their connection stays usable.
const drainLimit = 64 << 10

// Device is who answers.
type Device interface {
	http.Handler
	// ID is the node id.
	ID() string
	// Refusing reports whether the device takes no connections now.
	Refusing() bool
	// Reconcile makes effects of a request show, such as an outage that it began. Its answer is out by then.
	Reconcile()
}

// Conn is the connection a request came on.
type Conn interface {
	net.Conn
	// Reset closes the connection with a TCP reset.
	Reset()
}

// Server serves the requests of one protocol.
type Server struct {
	Faults *faults.Set
	Log    *reqlog.Log
	// Protocol is that of the log's entries.
	Protocol string
	// ErrorBody makes the body of a status that a rule gives without a body of its own. Both arguments may be empty.
	ErrorBody func(code int, messageID, message string) any

	mu       sync.Mutex
	closed   bool
	requests sync.WaitGroup // added to only while not closed
}

// Close waits for the requests that are being served. Those that come later are cut: an http.Server that is closed may
// still begin one which it had taken in before.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.requests.Wait()
}

// begin counts a request, unless the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.requests.Add(1)
	}
	return !s.closed
}

// exchange is one request and what becomes of it.
type exchange struct {
	server *Server
	device Device
	conn   Conn
	w      http.ResponseWriter
	r      *http.Request
	body   *countingBody
	entry  *reqlog.Entry
	sent   bool
	// answering announces to the log that the client is about to see an effect, recorded that the log has it.
	answering func() func()
	recorded  func()
}

// visible is called before the client can see anything of the request's end.
func (x *exchange) visible() {
	if x.recorded == nil {
		x.recorded = x.answering()
	}
}

// Serve answers one request.
func (s *Server) Serve(w http.ResponseWriter, req *http.Request, device Device, conn Conn) {
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.requests.Done()
	x := &exchange{
		server: s, device: device, conn: conn, w: w, answering: s.Log.Answering,
		body: &countingBody{ReadCloser: req.Body, length: req.ContentLength},
		entry: &reqlog.Entry{
			Time: time.Now(), Device: device.ID(), Protocol: s.Protocol, Method: req.Method, Path: req.URL.Path,
			Query: req.URL.RawQuery, UserAgent: req.UserAgent(),
		},
	}
	x.r = req.WithContext(reqlog.NewContext(req.Context(), x.entry))
	x.r.Body = x.body
	ended := s.Log.Begin(*x.entry)
	// Also when the handler is aborted, because the client left or the connection is to be cut.
	defer func() {
		x.finish()
		ended()
	}()
	x.run()
}

// finish records the request and lets an outage it began show; its own answer is out by now.
func (x *exchange) finish() {
	if x.entry.Write() {
		x.device.Reconcile()
	}
	e := *x.entry
	e.DurationMS = float64(time.Since(e.Time)) / float64(time.Millisecond)
	e.Bytes = x.body.read
	e.Complete = x.sent && x.body.complete()
	x.server.Log.Add(e)
	if x.recorded != nil {
		x.recorded()
	}
}

// run applies the fault rules around the device's own answer.
func (x *exchange) run() {
	if x.device.Refusing() {
		x.cut()
	}
	var merges []json.RawMessage
	var decided faults.Action
	for _, rule := range x.server.Faults.Match(x.device.ID(), x.r.Method, x.r.URL.Path) {
		x.entry.Fault = rule.ID
		switch a := rule.Action; {
		case a.Latency != nil:
			x.delay(*a.Latency)
		case len(a.JSONMerge) > 0:
			merges = append(merges, a.JSONMerge)
		default:
			decided = a
		}
	}
	read := x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
	switch cut := decided.Cut; {
	case decided.Status != nil && !decided.Status.AfterExecute:
		x.answerStatus(*decided.Status)
		return
	case decided.Redirect != nil:
		to, _ := decided.Redirect.Location(x.r.URL.Path)
		x.answerStatus(faults.Status{
			Code: cmp.Or(decided.Redirect.Code, http.StatusPermanentRedirect), Empty: true, Headers: map[string]string{"Location": to},
		})
		return
	case len(decided.Replace) > 0 && read:
		x.send(replaced(http.StatusOK, decided.Replace))
		return
	case cut != nil && cut.RequestBytes > 0:
		_, _ = io.CopyN(io.Discard, x.body, cut.RequestBytes)
		x.cut()
	case cut != nil && !cut.AfterExecute && cut.Bytes == 0:
		x.cut()
	}

	a := newRecorder()
	x.device.ServeHTTP(a, x.r)
	for _, merge := range merges {
		a.merge(merge)
	}
	switch {
	case decided.Status != nil:
		x.answerStatus(*decided.Status)
		return
	case len(decided.Replace) > 0:
		a = replaced(a.status, decided.Replace)
	case decided.Malformed:
		a.body.Truncate(a.body.Len() / 2)
	case decided.Cut != nil && decided.Cut.Bytes > 0:
		x.sendPart(a, decided.Cut.Bytes)
	case decided.Cut != nil:
		x.cut()
	}
	x.send(a)
}

func (x *exchange) delay(l faults.Latency) {
	wait := l.Mean
	if l.Jitter > 0 {
		wait += time.Duration(rand.Int64N(2*int64(l.Jitter)+1)) - l.Jitter
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// cut resets the connection and ends the handler.
func (x *exchange) cut() {
	x.visible()
	if c, _, err := http.NewResponseController(x.w).Hijack(); err == nil {
		x.conn.Reset()
		_ = c.Close()
	}
	panic(http.ErrAbortHandler)
}

// answerStatus receives the request and answers without the device.
func (x *exchange) answerStatus(s faults.Status) {
	if x.r.Header.Get("Expect") == "" {
		if _, err := io.Copy(io.Discard, x.body); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	a := newRecorder()
	switch {
	case len(s.Body) > 0:
		a = replaced(s.Code, s.Body)
	case !s.Empty:
		// An object of strings and numbers cannot fail to marshal.
		body, _ := json.Marshal(x.server.ErrorBody(s.Code, s.MessageID, s.Message))
		a = replaced(s.Code, body)
	default:
		a.status = s.Code
	}
	for key, value := range s.Headers {
		a.header.Set(key, value)
	}
	x.send(a)
}

// send writes the answer and notes whether it went out whole.
func (x *exchange) send(a *recorder) {
	x.drain()
	// Asked before the answer is out: a client may leave as soon as it has it.
	gone := x.r.Context().Err() != nil
	h := x.w.Header()
	for key, values := range a.header {
		h[key] = values
	}
	if a.status != http.StatusNoContent {
		h.Set("Content-Length", strconv.Itoa(a.body.Len()))
	}
	x.entry.Status = a.status
	x.visible()
	x.w.WriteHeader(a.status)
	_, err := x.w.Write(a.body.Bytes())
	if x.r.Method == http.MethodHead || a.status == http.StatusNoContent {
		err = nil
	}
	if err == nil {
		// Only the flush reaches the socket, where a client that left shows.
		err = http.NewResponseController(x.w).Flush()
	}
	x.sent = err == nil && !gone
}

// sendPart writes the head of the answer and the first bytes of its body, then closes the connection.
func (x *exchange) sendPart(a *recorder, n int) {
	x.drain()
	x.visible()
	c, _, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	x.entry.Status = a.status
	a.header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	_ = a.header.Write(&out) // a buffer takes everything
	out.WriteString("\r\n")
	out.Write(a.body.Bytes()[:min(n, a.body.Len())])
	_, _ = c.Write(out.Bytes())
	// Past the TLS layer: no close notify, the client sees the stream break off.
	_ = x.conn.Close()
	panic(http.ErrAbortHandler)
}

// drain receives what little is left of the request body.
func (x *exchange) drain() {
	if x.r.Header.Get("Expect") == "" && !x.body.complete() && x.r.ContentLength <= drainLimit {
		_, _ = io.CopyN(io.Discard, x.body, drainLimit)
	}
}

// countingBody counts the body's bytes and sees its end. An error stays: net/http follows the first with io.EOF.
type countingBody struct {
	io.ReadCloser
	length int64
	read   int64
	err    error
}

func (b *countingBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.err = err
	return n, err
}

func (b *countingBody) complete() bool {
	return errors.Is(b.err, io.EOF) || b.length >= 0 && b.read >= b.length
}

// recorder keeps an answer so that faults can work on it.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, status: http.StatusOK} }

func (a *recorder) Header() http.Header         { return a.header }
func (a *recorder) WriteHeader(status int)      { a.status = status }
func (a *recorder) Write(b []byte) (int, error) { return a.body.Write(b) }

// replaced is an answer with a given body; a JSON string is sent as text.
func replaced(status int, body json.RawMessage) *recorder {
	a := newRecorder()
	a.status = status
	var text string
	if json.Unmarshal(body, &text) == nil {
		a.header.Set("Content-Type", "text/html")
		a.body.WriteString(text)
		return a
	}
	a.header.Set("Content-Type", "application/json")
	a.body.Write(body)
	return a
}

// merge applies a JSON merge patch to a JSON answer.
func (a *recorder) merge(patch json.RawMessage) {
	var doc, change any
	if json.Unmarshal(a.body.Bytes(), &doc) != nil || json.Unmarshal(patch, &change) != nil {
		return
	}
	merged, err := json.Marshal(mergepatch.Apply(doc, change))
	if err != nil {
		return
	}
	a.body.Reset()
	a.body.Write(merged)
}
