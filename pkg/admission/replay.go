// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
)

// replay looks for an earlier admission under the request's idempotency key.
func (a *Admitter) replay(ctx context.Context, req *Request) (Result, bool, error) {
	key := req.Idempotency.storeKey()
	if key == "" {
		return Result{}, false, nil
	}
	var res Result
	found := false
	err := a.ride(ctx, func(ctx context.Context) error {
		prior, err := a.opts.Conn.Idempotency(ctx, key)
		if errors.Is(err, bus.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		id, err := job.ParseID(prior.GetJobId())
		if err != nil {
			return fmt.Errorf("admission: idempotency key: %w", err)
		}
		r, rev, err := a.opts.Conn.Record(ctx, id)
		if errors.Is(err, bus.ErrNotFound) {
			// Its job has been reaped, and the key goes with it.
			return a.opts.Conn.DropIdempotency(ctx, key)
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(prior.GetRequestDigest(), req.Idempotency.Digest) {
			return ErrKeyReused
		}
		res, err = a.rebuild(ctx, req, &r, rev)
		found = err == nil
		return err
	})
	return res, found, err
}

// ride repeats do while the broker is away, for as long as an admission would.
func (a *Admitter) ride(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.opts.BrokerLimit)
	defer cancel()
	for {
		err := do(ctx)
		if !errors.Is(err, bus.ErrUnavailable) {
			return err
		}
		if perr := pause(ctx, a.opts.BrokerPause); perr != nil {
			return err
		}
	}
}

// rebuild makes the result of an earlier admission from what it has stored.
func (a *Admitter) rebuild(ctx context.Context, req *Request, r *job.Record, rev bus.Revision) (Result, error) {
	res := Result{JobID: r.ID, Nodes: make([]NodeResult, len(req.Nodes)), Replayed: true}
	for i := range req.Nodes {
		res.Nodes[i].Ref = req.Nodes[i].Ref
	}
	if r.Kind != job.KindParent {
		res.Nodes[0].JobID = r.ID
		return res, nil
	}
	// The first request may be at work still.
	for !r.Admitted && !r.State.Terminal() {
		if err := pause(ctx, a.opts.BrokerPause); err != nil {
			return res, fmt.Errorf("admission of job %s is still under way: %w", r.ID, bus.ErrOutcomeUnknown)
		}
		next, nextRev, err := a.opts.Conn.Record(ctx, r.ID)
		if err != nil {
			return res, err
		}
		*r, rev = next, nextRev
	}
	return res, a.fillNodes(ctx, &res, r, rev)
}

func (a *Admitter) fillNodes(ctx context.Context, res *Result, parent *job.Record, rev bus.Revision) error {
	refused, err := a.opts.Conn.Admission(ctx, parent.ID)
	if err != nil {
		return err
	}
	for _, n := range refused.GetRefused() {
		if i := int(n.GetIndex()); i < len(res.Nodes) {
			res.Nodes[i].Refusal = &Refusal{Code: job.FailureAdmissionFailed, Message: n.GetMessage()}
		}
	}
	ids := make([]job.ID, parent.Total)
	for i := range ids {
		ids[i] = parent.ID.Child(uint32(i) + 1)
	}
	children, err := a.opts.Conn.Records(ctx, ids, rev)
	if err != nil {
		return err
	}
	byRef := make(map[node.Ref]job.ID, len(children))
	for id, c := range children {
		byRef[node.Ref{RackID: c.RackID, NodeID: c.NodeID}] = id
	}
	for i := range res.Nodes {
		n := &res.Nodes[i]
		if n.Refusal != nil {
			continue
		}
		if id, ok := byRef[n.Ref]; ok {
			n.JobID = id
			continue
		}
		n.Refusal = &Refusal{Code: job.FailureAdmissionFailed, Message: fmt.Sprintf(textNotReached, parent.ID)}
	}
	return nil
}
