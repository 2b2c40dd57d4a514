// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotHeld is wrapped by every error that says the Guard refused: the caller
// does not hold the node (any more) and must not touch it.
var ErrNotHeld = errors.New("the node is not held")

// Guard decides whether this process may act on the host.
type Guard interface {
	// Check returns nil while the node is held. It is called right before every
	// login, command and file operation and before every chunk of an upload, so it
	// has to be cheap. It is called from several goroutines.
	Check() error
	// Context derives the context a call runs under. It should end when the hold
	// is lost, which cuts the connection.
	Context(ctx context.Context) (context.Context, context.CancelFunc)
}

// Unguarded allows everything. It is for tools and tests that own the host by
// other means.
type Unguarded struct{}

// Check always allows.
func (Unguarded) Check() error { return nil }

// Context adds nothing but a cancel function.
func (Unguarded) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func check(g Guard) error {
	if err := g.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotHeld, err)
	}
	return nil
}
