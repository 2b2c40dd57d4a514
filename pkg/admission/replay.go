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

// Lookup finds what an earlier admission under the same key has made. refs are
// the nodes of the request in order; without them the result has the nodes that
// are stored. A key that was used for another request is ErrKeyReused.
func (a *Admitter) Lookup(ctx context.Context, idem Idempotency, refs []node.Ref) (Result, bool, error) {
	key := idem.storeKey()
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
		if !bytes.Equal(prior.GetRequestDigest(), idem.Digest) {
			return ErrKeyReused
		}
		res, err = a.rebuild(ctx, refs, &r, rev)
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
func (a *Admitter) rebuild(ctx context.Context, refs []node.Ref, r *job.Record, rev bus.Revision) (Result, error) {
	res := Result{JobID: r.ID, Replayed: true}
	if r.Kind != job.KindParent {
		res.Nodes = []NodeResult{{Ref: node.Ref{RackID: r.RackID, NodeID: r.NodeID}, JobID: r.ID}}
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
	nodes, err := a.storedNodes(ctx, refs, r, rev)
	res.Nodes = nodes
	return res, err
}

// storedNodes returns what became of the nodes of a batch, in request order.
func (a *Admitter) storedNodes(ctx context.Context, refs []node.Ref, parent *job.Record, rev bus.Revision) ([]NodeResult, error) {
	admission, err := a.opts.Conn.Admission(ctx, parent.ID)
	if err != nil {
		return nil, err
	}
	ids := make([]job.ID, parent.Total)
	for i := range ids {
		ids[i] = parent.ID.Child(uint32(i) + 1)
	}
	children, err := a.opts.Conn.Records(ctx, ids, rev)
	if err != nil {
		return nil, err
	}
	refused := admission.GetRefused()
	nodes := make([]NodeResult, len(refs))
	if len(refs) == 0 {
		nodes = make([]NodeResult, len(ids)+len(refused))
	}
	for i := range refs {
		nodes[i].Ref = refs[i]
	}
	for _, n := range refused {
		i, ref := int(n.GetIndex()), node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()}
		if i >= len(nodes) || len(refs) > 0 && refs[i] != ref {
			// The jobs service tells of no node in particular that the admission
			// was cut off.
			continue
		}
		nodes[i].Ref = ref
		nodes[i].Refusal = &Refusal{Code: job.FailureAdmissionFailed, Message: n.GetMessage()}
	}
	// Children have their indexes in request order, so they take the places
	// that no refused node has.
	next := 0
	for _, id := range ids {
		r := children[id]
		ref := node.Ref{RackID: r.RackID, NodeID: r.NodeID}
		for next < len(nodes) && (nodes[next].Refusal != nil || len(refs) > 0 && r.Exists() && nodes[next].Ref != ref) {
			next++
		}
		if next == len(nodes) {
			break
		}
		nodes[next].Ref, nodes[next].JobID = ref, id
		next++
	}
	for i := range nodes {
		if n := &nodes[i]; n.JobID.IsZero() && n.Refusal == nil {
			n.Refusal = &Refusal{Code: job.FailureAdmissionFailed, Message: fmt.Sprintf(textNotReached, parent.ID)}
		}
	}
	return nodes, nil
}
