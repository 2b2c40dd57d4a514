// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Sentinels that callers decide with. Each is wrapped with what was attempted.
var (
	// ErrConflict says that a key has changed since it was read: read again.
	ErrConflict = errors.New("bus: the key has changed")
	// ErrNotFound says that the key does not exist.
	ErrNotFound = errors.New("bus: not found")
	// ErrUnavailable says that the broker did not answer in time or cannot
	// write; nothing is known to have changed and a later try may succeed.
	ErrUnavailable = errors.New("bus: broker unavailable")
	// ErrOutcomeUnknown says that a write was sent and its answer was lost.
	ErrOutcomeUnknown = errors.New("bus: outcome of the write unknown")
	// ErrNoAgent says that no agent of the family serves requests.
	ErrNoAgent = errors.New("bus: no agent of this family is connected")
	// ErrTooLarge says that a message exceeds the broker's payload limit.
	ErrTooLarge = errors.New("bus: message too large")
	// ErrMisconfigured says that a stream or consumer is not set up as needed.
	ErrMisconfigured = errors.New("bus: broker is not set up for rackbus")
	// ErrServerVersion says that the broker is too old.
	ErrServerVersion = errors.New("bus: nats-server is too old")
	// ErrSessionLost says that the session lease is gone.
	ErrSessionLost = errors.New("bus: session lost")
	// ErrNotCommand says that a sequence is not that of a command.
	ErrNotCommand = errors.New("bus: not a command")
	// ErrClosed says that the connection was closed by this process, or given up.
	ErrClosed = errors.New("bus: connection closed")
)

// Broker error codes that decide what to do next (JetStream API error codes of
// nats-server 2.15).
const (
	codeWrongLastSequence     = 10071
	codeWrongLastSequenceBusy = 10164 // replicated: a write on the subject is in flight
	codeMessageNotFound       = 10037
	codeMessageDeleteFailed   = 10057
	codeStreamNotFound        = 10059
	codeConsumerNotFound      = 10014
	codeBatchIncomplete       = 10176
	codeTooManyBatches        = 10210
	codeBatchDuplicate        = 10201
	codeAtomicDisabled        = 10174
	codeBatchTooLong          = 10199
	codeTTLDisabled           = 10166
	codeSchedulesDisabled     = 10188
	codeInsufficientResources = 10023
	codeStorageExceeded       = 10047
	codeStreamStoreFailed     = 10077
)

// apiError is the error member of a JetStream API answer.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// Error tells the broker's code and words.
func (e *apiError) Error() string {
	return fmt.Sprintf("%v (broker code %d: %s)", sentinelFor(e.ErrCode), e.ErrCode, e.Description)
}

// Unwrap gives the sentinel the code stands for.
func (e *apiError) Unwrap() error { return sentinelFor(e.ErrCode) }

func (e *apiError) asError(what string) error { return fmt.Errorf("%s: %w", what, e) }

func sentinelFor(code int) error {
	switch code {
	case codeWrongLastSequence, codeWrongLastSequenceBusy:
		return ErrConflict
	case codeMessageNotFound:
		return ErrNotFound
	case codeStreamNotFound, codeConsumerNotFound, codeAtomicDisabled, codeBatchTooLong,
		codeTTLDisabled, codeSchedulesDisabled:
		return ErrMisconfigured
	default:
		return ErrUnavailable
	}
}

// inFlight reports whether a conflict is with a write that is under way, which
// may still come to nothing.
func inFlight(err error) bool {
	var api *apiError
	return errors.As(err, &api) && api.ErrCode == codeWrongLastSequenceBusy
}

// classify gives a client error of a request the sentinel it stands for.
// A write that may have been sent is ErrOutcomeUnknown.
func classify(what string, err error, write bool) error {
	if err == nil {
		return nil
	}
	var api *jetstream.APIError
	switch {
	case errors.As(err, &api):
		return (&apiError{Code: api.Code, ErrCode: int(api.ErrorCode), Description: api.Description}).asError(what)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%s: %w: %w", what, ErrTooLarge, err)
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%s: %w", what, ErrClosed)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, nats.ErrReconnectBufExceeded):
		return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", what, err)
	case write:
		return fmt.Errorf("%s: %w: %w", what, ErrOutcomeUnknown, err)
	default:
		return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
	}
}
