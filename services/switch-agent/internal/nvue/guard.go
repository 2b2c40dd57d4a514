// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/rackbus/rackbus/pkg/tracing"
)

// Guard decides whether this process may still change the switch.
type Guard interface {
	// Check returns nil while the node is held. It is called right before every
	// request that can change the switch, so it has to be cheap. It is called from
	// several goroutines.
	Check() error
	// Context derives the context a changing request runs under. It should end
	// when the hold is lost, which cuts the connection.
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// Unguarded allows every change. It is for tools and tests that own the switch
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

// checkCarried asks the guard a context carries, if any. The dialer of changing
// requests calls it after the TLS handshake, which may have taken a while.
func checkCarried(ctx context.Context) error {
	if g, ok := ctx.Value(guardKey{}).(Guard); ok {
		return check(g)
	}
	return nil
}

func check(g Guard) error {
	if err := g.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return nil
}

// roundTrip sends reads as they are and holds changes to the guard.
func (g *generation) roundTrip(req *http.Request, guard Guard) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return g.reads.RoundTrip(req)
	}
	if err := check(guard); err != nil {
		return nil, err
	}
	ctx, cancel := guard.Context(req.Context())
	ctx, end := tracing.Change(context.WithValue(ctx, guardKey{}, guard), req.Method, req.URL.Path)
	resp, err := g.writes.RoundTrip(req.WithContext(ctx))
	end(resp, err)
	if err != nil {
		if ctx.Err() != nil && req.Context().Err() == nil && !errors.Is(err, ErrNotHeld) {
			err = fmt.Errorf("%w: %w", ErrNotHeld, context.Cause(ctx))
		}
		cancel()
		return nil, err
	}
	resp.Body = &heldBody{ReadCloser: resp.Body, hold: ctx, caller: req.Context(), cancel: cancel}
	return resp, nil
}

// heldBody is the answer to a change. It ends the guard's context when it is
// closed, and tells a lost hold from a broken connection.
type heldBody struct {
	io.ReadCloser
	hold, caller context.Context
	once         sync.Once
	cancel       context.CancelFunc
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && b.hold.Err() != nil && b.caller.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrNotHeld, context.Cause(b.hold))
	}
	return n, err
}

func (b *heldBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(b.cancel)
	return err
}
