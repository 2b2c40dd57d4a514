// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// probeInterval is how often a stream that could not store is tried again.
const probeInterval = 2 * time.Second

// probeTTL removes the traces of these tries.
const probeTTL = time.Minute

// errUnanswered marks a write that the broker left without an answer for the
// whole request limit. That is how a server whose disk is full looks.
var errUnanswered = errors.New("no answer within the request limit")

// unanswered marks err when it was not the caller who gave up.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", err, errUnanswered)
	}
	return err
}

// health remembers streams that do not store, and tries them until they do
// again: a process without traffic of its own would otherwise never notice the
// repair.
type health struct {
	c      *Conn
	mu     sync.Mutex
	broken map[string]error
}

func newHealth(c *Conn) *health { return &health{c: c, broken: map[string]error{}} }

// note takes in how a write to a stream ended.
func (h *health) note(stream string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.broken[stream]
	switch {
	case err == nil && known:
		delete(h.broken, stream)
		h.c.log.Info("bus stream stores again", "stream", stream)
	case cannotStore(err) && !known && probeSubject(stream) != "":
		h.broken[stream] = err
		h.c.log.Error("bus stream cannot store", "stream", stream, "err", err)
		h.c.wg.Go(func() { h.probe(stream) })
	}
}

// check returns an error that names every stream that cannot store.
func (h *health) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for stream, err := range h.broken {
		return fmt.Errorf("%w: stream %s cannot store (disk full or I/O error at the broker?): %w", ErrUnavailable, stream, err)
	}
	return nil
}

func (h *health) isBroken(stream string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, broken := h.broken[stream]
	return broken
}

func (h *health) probe(stream string) {
	subject := probeSubject(stream) + encodeToken(h.c.opts.Name)
	for h.isBroken(stream) {
		if err := pause(h.c.ctx, probeInterval); err != nil {
			return
		}
		m := newMessage(subject, nil)
		if stream != streamEvents {
			setTTL(m, probeTTL)
		}
		if _, err := h.c.publish(h.c.ctx, m); err != nil && errors.Is(err, context.Canceled) {
			return
		}
	}
}

func cannotStore(err error) bool {
	if errors.Is(err, errUnanswered) {
		return true
	}
	var api *apiError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrCode {
	case codeInsufficientResources, codeStorageExceeded, codeStreamStoreFailed:
		return true
	default:
		return false
	}
}

// probes are subjects of each stream that nobody reads.
var probes = [...]struct{ stream, prefix, subject string }{
	{streamState, "$KV.rb.", "$KV.rb.probe."},
	{streamState, "rb.", "$KV.rb.probe."},
	{streamEvents, subjEvtPrefix, subjEvtPrefix + "probe."},
	{streamSessions, subjSessPrefix, subjSessPrefix + "probe."},
	{streamCheckpoints, subjCkptPrefix, subjCkptPrefix + "probe."},
	{streamInventory, "$KV.rb_inv.", "$KV.rb_inv.probe."},
	{streamCatalog, "$KV.rb_fw.", "$KV.rb_fw.probe."},
	{streamAudit, subjAuditPrefix, subjAuditPrefix + "probe."},
}

func probeSubject(stream string) string {
	for _, p := range probes {
		if p.stream == stream {
			return p.subject
		}
	}
	return ""
}

// streamOf names the stream of a subject, by its longest prefix.
func streamOf(subject string) string {
	best, stream := 0, ""
	for _, p := range probes {
		if strings.HasPrefix(subject, p.prefix) && len(p.prefix) > best {
			best, stream = len(p.prefix), p.stream
		}
	}
	return stream
}
