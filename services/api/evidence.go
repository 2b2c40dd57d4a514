// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/api/internal/evidence"
	"github.com/rackbus/rackbus/services/api/internal/jobview"
)

// maxCandidates is how many diagnoses of one job are looked at for a bundle, the
// newest first.
const maxCandidates = 32

// maxRuns is how many diagnoses of a batch an answer lists.
const maxRuns = 500

// Reasons why there is no link.
const (
	reasonNotWritten = "no bundle was written (yet)"
	reasonUnreadable = "the evidence store cannot be read now; try again"
	reasonNoKey      = "this installation has no key for links: run rackbus keys init and restart the API"
	reasonNoListener = "this installation has no HTTP listener for links: set console.base_url"
)

// evidenceHandler serves the links that GetEvidence gives out, below
// evidence.Prefix; nil where the installation has no key for them.
func (s *Server) evidenceHandler() http.Handler {
	if s.evidence == nil {
		return nil
	}
	return s.evidence
}

// newEvidence makes what signs and serves links.
func (s *Server) newEvidence() {
	if s.opts.LinkKey.Empty() {
		return
	}
	s.links = evidence.NewSigner(s.opts.LinkKey)
	s.evidence = evidence.NewHandler(s.opts.Conn, s.links, s.opts.Registerer, s.log)
}

// GetEvidence gives a link to the bundle of a diagnostics job, or of the newest one
// that has looked into the job and left a bundle.
func (j *jobsService) GetEvidence(ctx context.Context, req *rackbusv1.GetEvidenceRequest) (*rackbusv1.GetEvidenceResponse, error) {
	r, _, err := j.require(ctx, req.GetJobId())
	if err != nil {
		return nil, err
	}
	candidates, batch, reason := j.diagnosesOf(&r)
	for _, id := range candidates {
		var b evidence.Bundle
		err := j.ride(ctx, func(ctx context.Context) (err error) {
			b, err = evidence.Find(ctx, j.opts.Conn, id)
			return err
		})
		switch {
		case errors.Is(err, evidence.ErrNone):
			continue
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			j.log.WarnContext(ctx, "evidence not read", "job_id", id.String(), "err", err)
			return noEvidence(reasonUnreadable), nil
		}
		return j.link(id, &b)
	}
	resp := noEvidence(reason)
	if batch != nil {
		resp.Runs, err = j.evidenceRuns(ctx, batch)
	}
	return resp, err
}

// evidenceRuns are the diagnoses of a batch.
func (j *jobsService) evidenceRuns(ctx context.Context, batch *job.Record) ([]*rackbusv1.EvidenceRun, error) {
	r, rev, err := j.readJob(ctx, batch.ID.String())
	if err != nil {
		return nil, noJob(err, batch.ID.String())
	}
	ids := childIDs(&r)
	children, err := j.readAll(ctx, ids[:min(len(ids), maxRuns)], rev)
	if err != nil {
		return nil, noJob(err, r.ID.String())
	}
	runs := make([]*rackbusv1.EvidenceRun, len(children))
	for i := range children {
		c := &children[i]
		runs[i] = &rackbusv1.EvidenceRun{
			JobId: c.ID.String(), RackId: c.RackID, NodeId: c.NodeID, Stored: c.Diagnostics != nil && c.Diagnostics.Evidence != nil,
		}
	}
	return runs, nil
}

func noEvidence(reason string) *rackbusv1.GetEvidenceResponse {
	return &rackbusv1.GetEvidenceResponse{Status: rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, Reason: reason}
}

// link answers with a fresh link to a bundle.
func (j *jobsService) link(id job.ID, b *evidence.Bundle) (*rackbusv1.GetEvidenceResponse, error) {
	sum, err := hex.DecodeString(b.SHA256)
	if err != nil {
		return nil, fmt.Errorf("digest of the bundle of job %s: %w", id, err)
	}
	resp := &rackbusv1.GetEvidenceResponse{
		Status: rackbusv1.EvidenceStatus_EVIDENCE_STATUS_UNAVAILABLE, JobId: id.String(),
		Filename: b.Filename, ContentType: b.ContentType, SizeBytes: b.Size, Sha256: sum,
	}
	switch {
	case j.links == nil:
		resp.Reason = reasonNoKey
		return resp, nil
	case j.opts.EvidenceBaseURL == "":
		resp.Reason = reasonNoListener
		return resp, nil
	}
	expires := time.Now().Add(j.opts.LinkTTL).Truncate(time.Second)
	resp.Status = rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE
	resp.Url = j.links.URL(j.opts.EvidenceBaseURL, evidence.Link{Job: id, Filename: b.Filename, Expires: expires})
	resp.ExpiresAt = timestamppb.New(expires)
	return resp, nil
}

// diagnosesOf returns the jobs that may have left the bundle that is asked for, the
// newest first, and why there is none when that is so. A diagnosis of several nodes has
// no bundle of its own: the newest one is batch.
func (j *jobsService) diagnosesOf(r *job.Record) (ids []job.ID, batch *job.Record, reason string) {
	found := []job.Record{*r}
	if r.Type != job.TypeNodeDiagnostics {
		var err error
		found, _, err = j.view.List(jobview.Filter{Types: []job.Type{job.TypeNodeDiagnostics}, About: r.ID}, maxCandidates, "")
		if err != nil {
			return nil, nil, err.Error()
		}
		// What was found on its own node says more about a job than what was found on
		// others that were looked at with it.
		slices.SortStableFunc(found, func(a, b job.Record) int {
			return cmp.Compare(distance(r, &a), distance(r, &b))
		})
	}
	reason = reasonNotWritten
	if len(found) == 0 {
		reason = "no diagnosis has looked into job " + r.ID.String()
	}
	for i := range found {
		d := &found[i]
		switch {
		case d.Kind != job.KindParent:
			ids = append(ids, d.ID)
		case d.Total == 1:
			ids = append(ids, d.ID.Child(1))
		case batch != nil:
		case d.Total == 0 && len(found) == 1:
			reason = fmt.Sprintf("diagnosis %s has examined no node", d.ID)
		case d.Total > 1:
			batch = d
			reason = fmt.Sprintf("diagnosis %s has a bundle for each of its %d nodes: ask for one of its children, such as %s", d.ID, d.Total, d.ID.Child(1))
		}
	}
	return ids, batch, reason
}

// distance is 0 for a diagnosis of the node of a job, else 1.
func distance(r, diagnosis *job.Record) int {
	if diagnosis.RackID == r.RackID && diagnosis.NodeID == r.NodeID {
		return 0
	}
	return 1
}

// linkKey reads the key for links of an installation that has one.
func linkKey(cfg *config.Config, log *slog.Logger) (secret.Value, error) {
	dir := cfg.KeyDir()
	if dir == "" {
		return secret.Value{}, nil
	}
	key, err := seal.LoadLinkKey(dir)
	if errors.Is(err, fs.ErrNotExist) {
		log.Warn("no key for links: GetEvidence gives none; run rackbus keys init", "dir", dir)
		return secret.Value{}, nil
	}
	if err != nil {
		return secret.Value{}, fmt.Errorf("key for links: %w", err)
	}
	return key, nil
}
