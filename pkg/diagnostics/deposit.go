// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
)

// store ends the bundle, stores it, and then the manifest beside it. A run that
// fails anyway keeps its reason when the store fails, too.
func (r *run) store(ctx context.Context) error {
	if r.manifest == nil { // else the stage is repeated, with the same bundle
		r.manifest = r.newManifest()
		if err := r.bundle.Close(r.manifest); err != nil {
			return agent.Fail(job.FailureDiagnosticsStore, phaseStore, err.Error(), err)
		}
	}
	err := r.putRepeatedly(ctx, r.manifest)
	switch {
	case err == nil, r.lost(ctx, err):
		return err
	case r.failure != nil:
		r.t.Logger().Warn("evidence not stored", "err", err)
		return agent.Skip("the evidence could not be stored")
	}
	return agent.Fail(job.FailureDiagnosticsStore, phaseStore, "the evidence could not be stored: "+err.Error(), err)
}

func (r *run) putRepeatedly(ctx context.Context, m *Manifest) error {
	for n := 1; ; n++ {
		err := r.put(ctx, m)
		if err == nil || r.lost(ctx, err) || n >= r.w.opts.StoreAttempts {
			return err
		}
		r.t.Logger().Warn("evidence not stored yet", "attempt", n, "err", err)
		if serr := r.t.Sleep(ctx, r.w.opts.StorePause); serr != nil {
			return serr
		}
	}
}

// put stores the bundle and then its manifest, as long as the node is held: a
// former owner of the job must not replace what the next one has stored.
func (r *run) put(ctx context.Context, m *Manifest) error {
	guard, id := r.t.Guard(), r.t.ID()
	if err := guard.Check(); err != nil {
		return err
	}
	ctx, cancel := guard.Context(ctx)
	defer cancel()
	e, err := r.w.opts.Store.PutEvidence(ctx, bus.EvidenceBundle(id), bytes.NewReader(r.content.Bytes()))
	if err != nil {
		return err
	}
	target := r.t.Target()
	stored := &job.EvidenceBundle{
		Filename: Filename(target.GetRackId(), target.GetNodeId(), id), ContentType: BundleType,
		SizeBytes: e.Size, SHA256: e.Digest[:], WrittenAt: e.StoredAt,
	}
	beside := *m
	beside.Bundle = storedBundle(stored)
	raw, err := beside.encode()
	if err != nil {
		return err
	}
	if err := guard.Check(); err != nil {
		return err
	}
	if _, err := r.w.opts.Store.PutEvidence(ctx, bus.EvidenceManifest(id), bytes.NewReader(raw)); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	r.stored = stored
	r.w.opts.Metrics.stored(r.content.Len())
	return nil
}

func storedBundle(e *job.EvidenceBundle) *ManifestBundle {
	return &ManifestBundle{e.Filename, e.ContentType, e.SizeBytes, hex.EncodeToString(e.SHA256), e.WrittenAt}
}

// newManifest is what is known of the run once it has collected.
func (r *run) newManifest() *Manifest {
	target := r.t.Target()
	m := &Manifest{
		Version: manifestVersion, JobID: r.t.ID().String(), AboutJobID: r.order.GetAboutJobId(),
		RackID: target.GetRackId(), NodeID: target.GetNodeId(), NodeType: target.GetNodeType(),
		StartedAt: r.started, FinishedAt: time.Now().UTC(), Rackbus: r.w.opts.Version,
		Finding: r.finding, Collectors: manifestCollectors(r.outcomes),
		State: ManifestState{Before: r.before, After: r.after, Changes: r.changes},
	}
	if r.failure != nil {
		m.Failure = &ManifestFailure{r.failure.Failure.FailureCode, r.failure.Failure.Message}
	}
	return m
}
