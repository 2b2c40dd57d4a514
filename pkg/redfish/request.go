// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxBody is the most an answer may carry.
	maxBody = 8 << 20
	// maxRedirects is the most one request may be sent on.
	maxRedirects = 5

	jsonType = "application/json"
)

// body can be sent more than once, for redirects and second forms.
type body struct {
	contentType string
	size        int64
	open        func() io.Reader
}

func jsonBody(v any) (*body, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return &body{contentType: jsonType, size: int64(len(raw)), open: func() io.Reader { return bytes.NewReader(raw) }}, nil
}

type request struct {
	op     string
	method string
	path   string
	body   *body
	header http.Header
	limit  time.Duration
	// last says that no other request to the device follows soon.
	last bool
	// unlimited leaves the time to the caller's context.
	unlimited bool
}

type answer struct {
	status int
	header http.Header
	body   []byte
	path   string
}

// document parses an answer that has to be a JSON object.
func (a *answer) document() (document, error) { return parseDocument(a.body) }

// retryAfter reads the header: seconds or a date.
func retryAfter(h http.Header) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if s, err := strconv.Atoi(v); err == nil {
		return max(0, time.Duration(s)*time.Second)
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

// send performs one request, follows redirects within the device, and returns
// the answer of a 2xx. Everything else is an *Error.
func (c *Client) send(ctx context.Context, r request) (*answer, error) {
	if !r.unlimited {
		limit := r.limit
		if limit <= 0 {
			limit = c.timing.Request
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	for hop := 0; ; hop++ {
		a, err := c.once(ctx, r)
		if err != nil {
			return nil, err
		}
		next, redirected, err := c.redirect(r, a, hop)
		if err != nil {
			return nil, err
		}
		if redirected {
			r = next
			continue
		}
		if a.status < 200 || a.status > 299 {
			return nil, c.refusal(r, a)
		}
		return a, nil
	}
}

// once sends a single request and reads its answer.
func (c *Client) once(ctx context.Context, r request) (*answer, error) {
	var connected, handed atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	ctx = context.WithValue(ctx, serverNameKey{}, c.endpoint.HostName)
	req, err := c.build(ctx, r, &handed)
	if err != nil {
		return nil, &Error{Op: r.op, Method: r.method, Path: r.path, Code: CodeInvalidArgument, cause: err}
	}
	started := time.Now()
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		// A body that was never begun leaves the device nothing to act on.
		sent := connected.Load() && (req.Body == nil || handed.Load() || !errors.Is(err, ErrNotHeld))
		return nil, c.broken(ctx, r, 0, sent, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	c.log.LogAttrs(ctx, slog.LevelDebug, "redfish request", slog.String("op", r.op), slog.String("method", r.method),
		slog.String("path", r.path), slog.Int("status", resp.StatusCode), slog.Duration("took", time.Since(started)))
	if err != nil && resp.StatusCode < 300 {
		return nil, c.broken(ctx, r, resp.StatusCode, true, fmt.Errorf("read answer: %w", err))
	}
	if len(raw) > maxBody {
		return nil, &Error{Op: r.op, Method: r.method, Path: r.path, Status: resp.StatusCode, Code: CodeInvalidResponse,
			Sent: true, reason: "the answer is larger than 8 MiB"}
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: raw, path: r.path}, nil
}

func (c *Client) build(ctx context.Context, r request, handed *atomic.Bool) (*http.Request, error) {
	var content io.Reader
	if r.body != nil && r.body.size > 0 {
		content = &handedReader{r: r.body.open(), handed: handed}
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, content)
	if err != nil {
		// The parse error would repeat the whole URL.
		return nil, errors.New("the path cannot be requested")
	}
	for key, values := range r.header {
		req.Header[key] = values
	}
	req.Close = r.last
	if r.body != nil {
		req.ContentLength = r.body.size
		req.Header.Set("Content-Type", r.body.contentType)
	}
	req.Header.Set("Authorization", c.authorization())
	req.Header.Set("Accept", jsonType)
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("OData-Version", "4.0")
	req.Header.Set("User-Agent", c.userAgent)
	return req, nil
}

// handedReader notes that the first byte of a body was handed to the transport.
type handedReader struct {
	r      io.Reader
	handed *atomic.Bool
}

func (h *handedReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	if n > 0 {
		h.handed.Store(true)
	}
	return n, err
}

// broken builds the error of a request that got no usable answer.
func (c *Client) broken(ctx context.Context, r request, status int, sent bool, err error) *Error {
	code := transportCode(err)
	if ctx.Err() != nil && !errors.Is(err, ErrNotHeld) {
		code, err = ended(ctx)
	}
	e := &Error{Op: r.op, Method: r.method, Path: r.path, Status: status, Code: code, Sent: sent, cause: err}
	c.log.LogAttrs(ctx, slog.LevelDebug, "redfish request failed", slog.String("op", r.op), slog.String("method", r.method),
		slog.String("path", r.path), slog.String("err", e.Error()))
	return e
}

// refusal builds the error of an answer that is no success.
func (c *Client) refusal(r request, a *answer) *Error {
	e := &Error{Op: r.op, Method: r.method, Path: r.path, Status: a.status,
		Code: statusCode(a.status), RetryAfter: retryAfter(a.header), Sent: true}
	e.describe(a.body)
	e.MessageID, e.Message, e.Resolution = c.scrub(e.MessageID), c.scrub(e.Message), c.scrub(e.Resolution)
	return e
}

// redirect decides whether an answer sends the request elsewhere on the device.
// Method and body are kept, except for 303, which asks for a GET.
func (c *Client) redirect(r request, a *answer, hop int) (request, bool, error) {
	switch a.status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusSeeOther:
		r.method, r.body = http.MethodGet, nil
	default:
		return r, false, nil
	}
	location := a.header.Get("Location")
	path, err := c.headerPath(a.path, location)
	if err == nil && hop < maxRedirects && path != r.path {
		r.path = path
		return r, true, nil
	}
	e := &Error{Op: r.op, Method: r.method, Path: a.path, Status: a.status, Code: CodeInvalidResponse, Sent: true}
	switch {
	case err != nil:
		c.log.Warn("redirect to another origin refused", slog.String("op", r.op), slog.String("path", a.path))
		e.reason, e.cause = "redirect refused", err
	default:
		e.reason = "redirects do not end"
	}
	return r, false, e
}
