// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/rand"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// auditLog is where the records go.
type auditLog interface {
	PutAudit(ctx context.Context, id string, r *rackbusv1.AuditRecord) error
}

// maxAuditBacklog is how many records may wait for a broker that is away. A record
// is some hundred bytes, or some thousand for a large batch.
const maxAuditBacklog = 1024

// auditor keeps a record of every call that changes something, and of every call
// that was refused for its caller's role.
type auditor struct {
	to     auditLog
	log    *slog.Logger
	lost   prometheus.Counter
	timing Timing

	slots   chan struct{} // one for each record that waits
	waiting sync.WaitGroup
	quit    context.Context //nolint:containedctx // the life of the server
	stop    context.CancelFunc
}

func newAuditor(to auditLog, timing Timing, lost prometheus.Counter, log *slog.Logger) *auditor {
	quit, stop := context.WithCancel(context.Background())
	return &auditor{
		to: to, log: log, lost: lost, timing: timing,
		slots: make(chan struct{}, maxAuditBacklog), quit: quit, stop: stop,
	}
}

// ended is a call that has ended.
type ended struct {
	method    string
	req, resp any
	err       error
	start     time.Time
}

// ended writes the record of a call, when it needs one, before its answer goes
// out. The answer does not wait for long: while the broker is away the record does,
// and the call stands even when it is lost.
func (a *auditor) ended(ctx context.Context, e ended) {
	rule, known := access.RuleOf(e.method)
	refused := status.Code(e.err) == codes.PermissionDenied
	if known && !rule.Changes && (!refused || stranger(ctx)) {
		return
	}
	defer func() { // nothing about a record may harm the call, whose panics are caught further in
		if p := recover(); p != nil {
			a.lost.Inc()
			a.log.ErrorContext(ctx, "audit record lost", "op", e.method, "err", p, "stack", string(debug.Stack()))
		}
	}()
	record := auditRecord(ctx, e)
	a.tellLog(ctx, record)
	id := rand.Text()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.limit(ctx))
	defer cancel()
	err := a.to.PutAudit(limit, id, record)
	if err == nil {
		return
	}
	select {
	case a.slots <- struct{}{}:
		a.waiting.Go(func() { //nolint:contextcheck // the record outlives its call
			defer func() { <-a.slots }()
			a.keepTrying(id, record, err)
		})
	default:
		a.lose(record, err)
	}
}

// limit is how long the answer of a call waits for its record: no longer than until its
// caller would be gone.
func (a *auditor) limit(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return min(a.timing.AuditLimit, time.Until(d)/2)
	}
	return a.timing.AuditLimit
}

// stranger reports whether a caller has shown no certificate. Anybody who reaches the
// listener for browsers can be one, and must not be able to fill the audit: what is
// read without any right is told by the log.
func stranger(ctx context.Context) bool {
	p, _ := access.FromContext(ctx)
	return p.Role == access.None && p.Identity == certs.UnknownPeer
}

// keepTrying stores a record that could not be stored at once. One that was stored
// all the same is not stored twice. When the server ends there is one more try.
func (a *auditor) keepTrying(id string, r *rackbusv1.AuditRecord, err error) {
	ctx, cancel := context.WithTimeout(a.quit, a.timing.AuditPatience)
	defer cancel()
	for pause(ctx, a.timing.BrokerPause) == nil {
		if err = a.to.PutAudit(ctx, id, r); err == nil {
			return
		}
	}
	if a.quit.Err() != nil {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.timing.AuditLimit)
		defer cancel()
		if err = a.to.PutAudit(last, id, r); err == nil {
			return
		}
	}
	a.lose(r, err)
}

func (a *auditor) lose(r *rackbusv1.AuditRecord, err error) {
	a.lost.Inc()
	a.log.Error("audit record lost", "op", r.GetRpc(), "caller", r.GetIdentity(), "job_id", r.GetJobId(), "err", err)
}

// close gives what still waits a last try.
func (a *auditor) close() {
	a.stop()
	a.waiting.Wait()
}

// tellLog writes the same into the log, which has room for one node.
func (a *auditor) tellLog(ctx context.Context, r *rackbusv1.AuditRecord) {
	attrs := []slog.Attr{
		slog.String("op", r.GetRpc()), slog.String("caller", r.GetIdentity()),
		slog.String("role", access.Role(r.GetRole()).String()), slog.String("peer", r.GetPeer()), slog.String("outcome", r.GetOutcome()),
	}
	if id := r.GetJobId(); id != "" {
		attrs = append(attrs, slog.String("job_id", id))
	}
	if n := r.GetNodes(); len(n) > 0 {
		attrs = append(attrs, slog.String("rack", n[0].GetRackId()), slog.String("node", n[0].GetNodeId()),
			slog.Uint64("nodes", uint64(r.GetNodeCount())))
	}
	for _, key := range sortedKeys(r.GetAttributes()) {
		attrs = append(attrs, slog.String(key, r.GetAttributes()[key]))
	}
	a.log.LogAttrs(ctx, slog.LevelInfo, "audit", attrs...)
}

// asMessage returns the message in a request or an answer, nil without one.
func asMessage(v any) proto.Message {
	m, ok := v.(proto.Message)
	if !ok || m == nil || !m.ProtoReflect().IsValid() {
		return nil
	}
	return m
}
