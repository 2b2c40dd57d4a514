// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/rackbus/rackbus/pkg/tracing"
)

// guardChunk is the most bytes of a body that leave after one Check.
const guardChunk = 256 << 10

// ErrNotHeld is wrapped by every error that says the Guard refused: the caller
// does not hold the node (any more) and must not touch it.
var ErrNotHeld = errors.New("the node is not held")

// Guard decides whether this process may still change the device.
type Guard interface {
	// Check returns nil while the node is held. It is called right before every
	// request that can change the device and before every chunk of its body, so
	// it has to be cheap. It is called from several goroutines.
	Check() error
	// Context derives the context a changing request runs under. It should end
	// when the hold is lost, which cuts the connection.
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// Unguarded allows every change. It is for tools and tests that own the device
// by other means.
type Unguarded struct{}

// Check always allows.
func (Unguarded) Check() error { return nil }

// Context adds nothing but a cancel function.
func (Unguarded) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// readOnly is the guard of clients that were given none.
type readOnly struct{ Unguarded }

func (readOnly) Check() error { return errors.New("this client may only read") }

type guardKey struct{}

// checkGuard asks the guard a context carries, if any. The dialer of changing
// requests calls it after the TLS handshake, which may have taken a while.
func checkGuard(ctx context.Context) error {
	g, ok := ctx.Value(guardKey{}).(Guard)
	if !ok {
		return nil
	}
	return check(g)
}

func check(g Guard) error {
	if err := g.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return nil
}

// guardTransport sends reads as they are and holds changes to the guard.
type guardTransport struct {
	pool  *Pool
	guard Guard
}

// RoundTrip implements http.RoundTripper.
func (t *guardTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if safeMethod(req.Method) {
		return t.pool.reads.RoundTrip(req)
	}
	if err := check(t.guard); err != nil {
		closeBody(req)
		return nil, err
	}
	ctx, cancel := t.guard.Context(req.Context())
	ctx, end := tracing.Change(context.WithValue(ctx, guardKey{}, t.guard), req.Method, req.URL.Path)
	guarded := req.WithContext(ctx)
	if req.Body != nil && req.Body != http.NoBody {
		guarded.Body = &guardedBody{ReadCloser: req.Body, guard: t.guard}
		// Without GetBody the transport cannot repeat the request on its own.
		guarded.GetBody = nil
	}
	resp, err := t.pool.writes.RoundTrip(guarded)
	end(resp, err)
	if err != nil {
		if ctx.Err() != nil && req.Context().Err() == nil && !errors.Is(err, ErrNotHeld) {
			err = fmt.Errorf("%w: %w", ErrNotHeld, context.Cause(ctx))
		}
		cancel()
		return nil, err
	}
	resp.Body = &cancelOnClose{ReadCloser: resp.Body, cancel: cancel}
	return resp, nil
}

func safeMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// guardedBody asks the guard before it hands over each chunk.
type guardedBody struct {
	io.ReadCloser
	guard Guard
}

func (b *guardedBody) Read(p []byte) (int, error) {
	if err := check(b.guard); err != nil {
		return 0, err
	}
	if len(p) > guardChunk {
		p = p[:guardChunk]
	}
	return b.ReadCloser.Read(p)
}

type cancelOnClose struct {
	io.ReadCloser
	once   sync.Once
	cancel context.CancelFunc
}

func (b *cancelOnClose) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.cancel)
	return err
}

func isNotHeld(err error) bool { return errors.Is(err, ErrNotHeld) }
