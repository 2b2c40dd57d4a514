// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
)

// Switch is one opened switch.
type Switch interface {
	// Node names the switch.
	Node() node.Ref
	// Initialize protects the NVUE connections. It comes first, and may be repeated.
	Initialize(ctx context.Context) error
	API() *nvue.Client
	// AppAddress is IP address and port of the gRPC service of a cluster app.
	AppAddress(app string) string
	// Controller says how the controller's gRPC service is reached at this moment.
	Controller() (nmxc.Options, error)
	// Insecure says that gRPC is plaintext.
	Insecure() bool
	// Shell runs command lines; close it.
	Shell() (*ssh.Client, error)
	Close()
}

// interrupted tells errors that say nothing about a switch: the caller gave up or
// may not act, or the job was asked to stop. Nothing is concluded from them.
func interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, nmxc.ErrNotHeld) ||
		errors.As(err, new(*passedError)) || device.Passes(err) && !errors.As(err, new(*agent.FailureError))
}

// passedError is an error that workflows hand on as it is.
type passedError struct{ err error }

func (e *passedError) Error() string { return e.err.Error() }

func (e *passedError) Unwrap() error { return e.err }

// until looks until probe is done. It returns the error of the last look when
// none was, with false. Errors that end the wait are returned at once: those that
// are none of the switch, and refused credentials.
func (l Look) until(ctx context.Context, probe func(context.Context) (done bool, err error)) (bool, error) {
	var last error
	for n := range l.Times {
		if n > 0 {
			if err := runbook.Sleep(ctx, l.Pause); err != nil {
				return false, err
			}
		}
		done, err := probe(ctx)
		switch {
		case done && err == nil:
			return true, nil
		case err != nil && (interrupted(ctx, err) || errors.Is(err, nvue.ErrUnauthenticated) || errors.Is(err, nvue.ErrForbidden)):
			return false, err
		}
		last = err
	}
	return false, last
}
