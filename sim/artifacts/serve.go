// SPDX-License-Identifier: Apache-2.0

package artifacts

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	out := &response{ResponseWriter: w, server: s, ctx: r.Context(), fault: s.take(r.Method, path)}
	s.begin(out, path)
	seen := Request{
		Time: time.Now(), Method: r.Method, Path: path, Range: r.Header.Get("Range"), IfRange: r.Header.Get("If-Range"),
		Token: r.Header.Get(TokenHeader), Header: r.Header.Clone(),
	}
	// Also when the connection is cut on purpose.
	defer func() { s.record(out, seen) }()
	s.answer(out, r, path)
}

func (s *Server) answer(w *response, r *http.Request, path string) {
	f := w.fault
	if !pass(r.Context(), f.Latency) {
		panic(http.ErrAbortHandler)
	}
	s.mu.Lock()
	found, ok := s.files[path]
	s.serial++
	fresh := fmt.Sprintf(`"f%d"`, s.serial)
	s.mu.Unlock()
	switch {
	case f.Redirect != "":
		w.Header().Set("Location", strings.ReplaceAll(f.Redirect, "{path}", path))
		w.WriteHeader(cmp.Or(f.Status, http.StatusFound))
		return
	case f.Status != 0:
		if f.RetryAfter != 0 {
			w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		}
		http.Error(w, http.StatusText(f.Status), f.Status)
		return
	case s.opts.Token != "" && r.Header.Get(TokenHeader) != s.opts.Token:
		http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	case !ok:
		http.NotFound(w, r)
		return
	case f.RangeStatus != 0 && r.Header.Get("Range") != "":
		http.Error(w, http.StatusText(f.RangeStatus), f.RangeStatus)
		return
	}
	content(w, r, found, fresh)
}

// content sends a file, or the part of it that was asked for.
func content(w *response, r *http.Request, found file, fresh string) {
	f := w.fault
	if f.Empty {
		found.open, found.size = func() io.ReadSeeker { return strings.NewReader("") }, 0
	}
	body := found.open()
	if f.Corrupt {
		body = &flipped{ReadSeeker: body, at: found.size / 2}
	}
	if f.NoRange {
		r.Header.Del("Range")
	}
	modified := found.modified
	switch {
	case f.NoETag:
		modified = time.Time{}
	case f.FreshETag:
		w.Header().Set("ETag", fresh)
	default:
		w.Header().Set("ETag", found.tag)
	}
	if f.WrongRange && r.Header.Get("Range") != "" {
		w.shift = true
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if f.LengthDelta != 0 {
		w.falsify(r, body, found.size+f.LengthDelta)
		return
	}
	http.ServeContent(w, r, "", modified, body)
}

// pass waits and reports whether the client stayed.
func pass(ctx context.Context, wait time.Duration) bool {
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// response sends an answer the way a fault wants it.
type response struct {
	http.ResponseWriter
	server *Server
	ctx    context.Context
	fault  Fault
	status int
	// sent counts body bytes; only this response writes it, under the server's lock.
	sent  int64
	shift bool
}

func (w *response) WriteHeader(status int) {
	w.status = status
	h := w.Header()
	if w.fault.NoRange {
		h.Set("Accept-Ranges", "none")
	}
	if w.fault.NoLength {
		h.Del("Content-Length")
	}
	if w.shift && status == http.StatusPartialContent {
		// It claims to begin at the start of the file.
		_, total, _ := strings.Cut(h.Get("Content-Range"), "/")
		n, _ := strconv.ParseInt(h.Get("Content-Length"), 10, 64)
		h.Set("Content-Range", fmt.Sprintf("bytes 0-%d/%s", n-1, total))
	}
	w.ResponseWriter.WriteHeader(status)
	if w.fault.CutAtOnce && status < http.StatusMultipleChoices {
		w.cut()
	}
}

// Write sends bytes up to where the fault strikes.
func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	done := 0
	for done < len(b) {
		part := b[done:]
		if rate := w.fault.BytesPerSecond; rate > 0 {
			// A twentieth of a second's bytes at a time keeps the flow even.
			part = part[:min(int64(len(part)), max(rate/20, 1))]
			if !pass(w.ctx, time.Duration(len(part))*time.Second/time.Duration(rate)) {
				return done, w.ctx.Err()
			}
		}
		if stop := cmp.Or(w.fault.CutAfter, w.fault.StallAfter); stop > 0 {
			part = part[:min(int64(len(part)), stop-w.sent)]
		}
		n, err := w.ResponseWriter.Write(part)
		done += n
		if w.fault.BytesPerSecond > 0 || w.fault.StallAfter > 0 {
			_ = http.NewResponseController(w.ResponseWriter).Flush()
		}
		w.server.progress(w, int64(n))
		if err != nil {
			return done, err
		}
		switch {
		case w.fault.CutAfter > 0 && w.sent >= w.fault.CutAfter:
			w.cut()
		case w.fault.StallAfter > 0 && w.sent >= w.fault.StallAfter:
			<-w.ctx.Done()
			return done, w.ctx.Err()
		}
	}
	return done, nil
}

// cut sends what is written and breaks the connection off.
func (w *response) cut() {
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// falsify sends the file with a Content-Length that is not its own, past net/http, which would not.
func (w *response) falsify(r *http.Request, body io.Reader, length int64) {
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer conn.Close()
	w.status = http.StatusOK
	stop := context.AfterFunc(w.ctx, func() { _ = conn.Close() })
	defer stop()
	h := w.Header()
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	h.Set("Connection", "close")
	if _, err := fmt.Fprint(conn, "HTTP/1.1 200 OK\r\n"); err != nil {
		return
	}
	if h.Write(conn) != nil {
		return
	}
	if _, err := fmt.Fprint(conn, "\r\n"); err != nil || r.Method == http.MethodHead {
		return
	}
	n, _ := io.Copy(conn, body) // the client may leave
	w.server.progress(w, n)
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	// The client may still be reading; it closes when it has enough.
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, conn)
}

// Unwrap gives http.ResponseController the writer below.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// flipped flips one bit of a file.
type flipped struct {
	io.ReadSeeker
	at, pos int64
}

func (f *flipped) Read(b []byte) (int, error) {
	n, err := f.ReadSeeker.Read(b)
	if i := f.at - f.pos; i >= 0 && i < int64(n) {
		b[i] ^= 1
	}
	f.pos += int64(n)
	return n, err
}

func (f *flipped) Seek(offset int64, whence int) (int64, error) {
	pos, err := f.ReadSeeker.Seek(offset, whence)
	f.pos = pos
	return pos, err
}
