// SPDX-License-Identifier: Apache-2.0

// Package diagnose starts the examination of nodes whose jobs have failed, where
// the installation wants that.
package diagnose

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// maxAge is how long after its end a job is worth a look at its node. Timers that
// were held up for longer, because this service was away, are dropped.
const maxAge = time.Hour

// Wanted reports whether a job that has ended is one after which the node is
// examined: it failed or timed out on a node on which it had begun to work, and is
// no diagnosis itself. A job that never started has left the node as it was.
func Wanted(r *job.Record) bool {
	return (r.State == job.StateFailed || r.State == job.StateTimedOut) && r.Kind == job.KindLeaf &&
		r.NodeID != "" && !r.StartedAt.IsZero() && r.Type != job.TypeNodeDiagnostics && r.Family != string(node.FamilyRack)
}

// Starter starts examinations.
type Starter struct {
	conn     *bus.Conn
	admitter *admission.Admitter
	log      *slog.Logger
	results  *prometheus.CounterVec
}

// What became of an examination that was to be started.
const (
	resultStarted      = "started"
	resultRefused      = "refused"
	resultUnregistered = "not_registered"
	resultLate         = "too_late"
)

// New returns a starter. Close it.
func New(opts admission.Options, reg prometheus.Registerer) (*Starter, error) {
	a, err := admission.New(opts)
	if err != nil {
		return nil, err
	}
	s := &Starter{conn: opts.Conn, admitter: a, log: opts.Logger, results: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rackbus_diagnostics_automatic_total",
		Help: "Failed jobs whose nodes were to be examined by themselves, by what became of it.",
	}, []string{"result"})}
	for _, result := range []string{resultStarted, resultRefused, resultUnregistered, resultLate} {
		s.results.WithLabelValues(result)
	}
	if reg != nil {
		if err := reg.Register(s.results); err != nil {
			a.Close()
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return s, nil
}

// Close ends what is under way.
func (s *Starter) Close() { s.admitter.Close() }

// Start starts the examination of a job's node. It may be called again for the same
// job: there is one examination at most. A node that is busy again is left alone,
// since its state is not that of the failure any more.
func (s *Starter) Start(ctx context.Context, r *job.Record) error {
	log := s.log.With("job_id", r.ID.String(), "rack", r.RackID, "node", r.NodeID)
	if time.Since(r.FinishedAt) > maxAge {
		return s.pass(ctx, log, resultLate, "the job has ended too long ago")
	}
	n, _, err := s.conn.Node(ctx, node.Ref{RackID: r.RackID, NodeID: r.NodeID})
	if errors.Is(err, bus.ErrNotFound) {
		return s.pass(ctx, log, resultUnregistered, "the node is not registered")
	}
	if err != nil {
		return fmt.Errorf("look up node of job %s: %w", r.ID, err)
	}
	history, err := diagnostics.ReadHistory(ctx, s.conn, r.ID)
	if err != nil {
		return fmt.Errorf("read history of job %s: %w", r.ID, err)
	}
	digest := sha256.Sum256([]byte(r.ID.String()))
	res, err := s.admitter.AdmitLeaf(ctx, admission.Request{
		Type: job.TypeNodeDiagnostics, RackID: r.RackID, OnBusy: admission.OnBusyRefuse,
		Idempotency: admission.Idempotency{Caller: "jobs", RPC: "automatic_diagnostics", Key: r.ID.String(), Digest: digest[:]},
		Nodes:       []admission.Node{diagnostics.AdmissionNode(n.GetTarget(), r.ID, history)},
	})
	var refusal *admission.Refusal
	switch {
	case errors.As(err, &refusal):
		return s.pass(ctx, log, resultRefused, refusal.Message)
	case err != nil:
		return fmt.Errorf("start diagnosis of job %s: %w", r.ID, err)
	}
	if !res.Replayed {
		s.results.WithLabelValues(resultStarted).Inc()
		log.InfoContext(ctx, "diagnosis of a failed job started", "diagnosis", res.JobID.String())
	}
	return nil
}

func (s *Starter) pass(ctx context.Context, log *slog.Logger, result, reason string) error {
	s.results.WithLabelValues(result).Inc()
	log.InfoContext(ctx, "failed job not looked into", "reason", reason)
	return nil
}
