// SPDX-License-Identifier: Apache-2.0

package nvue

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
	"sync/atomic"
	"time"

	"github.com/rackbus/rackbus/pkg/secret"
)

const (
	// maxBody is the most an answer may carry.
	maxBody = 8 << 20

	jsonType = "application/json"
)

// call is one request. Without a body it sends none.
type call struct {
	op      string
	method  string
	path    string
	body    any
	secrets []secret.Value
	// over replaces the connections in force.
	over *generation
	// unread says that a 2xx is all that matters: its body is not looked at.
	unread bool
}

// Get reads any resource below /nvue_v1, path and query percent-encoded. The
// JSON is given as the switch sent it.
func (c *Client) Get(ctx context.Context, path string) (json.RawMessage, error) {
	return c.do(ctx, call{op: "read switch resource", method: http.MethodGet, path: path})
}

func (c *Client) get(ctx context.Context, op string, path string) (json.RawMessage, error) {
	return c.do(ctx, call{op: op, method: http.MethodGet, path: path})
}

// do sends one request and gives the JSON of a 2xx; an empty one is {}.
func (c *Client) do(ctx context.Context, r call) (json.RawMessage, error) {
	var raw []byte
	status, sent, err := c.send(ctx, r, func(resp *http.Response) error {
		body, err := readBody(resp, r.unread && success(resp.StatusCode))
		raw = body
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !success(status):
		return nil, c.refusal(r, status, raw)
	case r.unread || len(bytes.TrimSpace(raw)) == 0:
		return json.RawMessage("{}"), nil
	case !json.Valid(raw):
		return nil, &Error{Op: r.op, Method: r.method, Path: r.path, Status: status, Code: ErrBadResponse, Sent: sent,
			reason: "the answer is not JSON"}
	}
	return raw, nil
}

// status sends one request and gives the status of the answer, body unread.
func (c *Client) status(ctx context.Context, r call) (int, error) {
	status, _, err := c.send(ctx, r, func(*http.Response) error { return nil })
	return status, err
}

func (c *Client) send(ctx context.Context, r call, receive func(*http.Response) error) (status int, sent bool, err error) {
	g := r.over
	if g == nil {
		g = c.current()
	}
	if g == nil {
		return 0, false, &Error{Op: r.op, Code: ErrFailedPrecondition, reason: "the connection to the switch was not initialized"}
	}
	c.hide(r.secrets...)
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, c.timing.Request)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	})
	req, err := c.build(ctx, r)
	if err != nil {
		return 0, false, err
	}
	started := time.Now()
	resp, err := g.roundTrip(req, c.guard)
	if err != nil {
		return 0, false, c.broken(caller, ctx, r, 0, connected.Load(), err)
	}
	defer func() { _ = resp.Body.Close() }()
	err = receive(resp)
	c.log.LogAttrs(ctx, slog.LevelDebug, "nvue request", slog.String("op", r.op), slog.String("method", r.method),
		slog.String("path", r.path), slog.Int("status", resp.StatusCode), slog.Duration("took", time.Since(started)))
	if err != nil {
		return resp.StatusCode, true, c.broken(caller, ctx, r, resp.StatusCode, true, err)
	}
	return resp.StatusCode, true, nil
}

func (c *Client) build(ctx context.Context, r call) (*http.Request, error) {
	if !insideAPI(r.path) {
		return nil, invalid(r.op, "the path leaves the NVUE API")
	}
	var content io.Reader
	if r.body != nil {
		raw, err := json.Marshal(r.body)
		if err != nil {
			return nil, invalid(r.op, "the body cannot be written as JSON")
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, content)
	if err != nil || c.base != req.URL.Scheme+"://"+req.URL.Host {
		// The parse error would repeat the whole URL.
		return nil, invalid(r.op, "the path cannot be requested")
	}
	req.Header.Set("Content-Type", jsonType)
	req.Header.Set("Accept", jsonType)
	req.Header.Set("User-Agent", "rackbus")
	if c.username != "" {
		req.Header.Set("Authorization", "Basic "+c.basic().Reveal())
	}
	return req, nil
}

func success(status int) bool { return status >= 200 && status < 300 }

var errTooLarge = errors.New("the answer is larger than 8 MiB")

func readBody(resp *http.Response, unread bool) ([]byte, error) {
	if unread {
		return nil, nil
	}
	if resp.ContentLength > maxBody {
		return nil, errTooLarge
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case len(raw) > maxBody:
		return nil, errTooLarge
	case err != nil && success(resp.StatusCode):
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return raw, nil
}

// broken builds the error of a request that got no usable answer.
func (c *Client) broken(caller, ctx context.Context, r call, status int, sent bool, err error) *Error {
	e := &Error{Op: r.op, Method: r.method, Path: r.path, Status: status, Code: transportCode(err), Sent: sent,
		cause: &scrubbed{text: c.words(err.Error()), err: err}}
	switch {
	case errors.Is(err, errTooLarge):
		e.Code = ErrBadResponse
	case errors.Is(err, ErrNotHeld):
	case caller.Err() != nil:
		e.Code, e.cause = transportCode(caller.Err()), caller.Err()
		if cause := context.Cause(caller); !errors.Is(cause, caller.Err()) {
			e.cause = fmt.Errorf("%w: %w", caller.Err(), cause)
		}
	case ctx.Err() != nil:
		e.Code, e.cause, e.reason = ErrTimeout, ctx.Err(), "no answer in time"
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, "nvue request failed", slog.String("op", r.op), slog.String("method", r.method),
		slog.String("path", r.path), slog.Any("err", e))
	return e
}

// scrubbed is an error whose text may hold bytes of the switch.
type scrubbed struct {
	text string
	err  error
}

// Error gives the text without secrets.
func (s *scrubbed) Error() string { return s.text }

// Unwrap gives the error as it was.
func (s *scrubbed) Unwrap() error { return s.err }

// refusal builds the error of an answer that is no success.
func (c *Client) refusal(r call, status int, raw []byte) *Error {
	e := &Error{Op: r.op, Method: r.method, Path: r.path, Status: status, Code: statusCode(status), Sent: true}
	if status >= 300 && status < 400 {
		// The target is not repeated: it may carry anything.
		e.reason = "redirect refused"
		return e
	}
	e.Issue = c.words(issueText(raw))
	return e
}

// words prepares a text of the switch for an error.
func (c *Client) words(text string) string { return shorten(c.scrub(text)) }
