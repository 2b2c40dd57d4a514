// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/status"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// firmwareRack stands for the rack of jobs that work on the catalogue. Their nodes
// are caches, so that one download at a time works on a cache.
const firmwareRack = "firmware"

func cacheRef(cache string) node.Ref { return node.Ref{RackID: firmwareRack, NodeID: cache} }

// ephemeralCache names the cache of one apply.
func ephemeralCache(objectID string) string { return objectID + "-" + uuid.NewString() }

// checkCache refuses an object whose caches could not be addressed: the name of one
// for an apply is the longest.
func checkCache(objectID string) error {
	if err := bus.CheckRef(cacheRef(ephemeralCache(objectID))); err != nil {
		return errorf(CodeInvalidArgument, "firmware object Id %q is too long", objectID)
	}
	return nil
}

// admitDownload starts the job that downloads the artifacts of a cache. Secrets, which
// may be nil, are sealed for the jobs service, which alone runs downloads.
func (s *Server) admitDownload(ctx context.Context, cache string, secrets *rackbusv1.DownloadSecrets) (job.ID, error) {
	targets := s.newTargets()
	ref := cacheRef(cache)
	command := func(id job.ID) (*rackbusv1.JobCommand, error) {
		cmd := &rackbusv1.JobCommand{
			Target:    &rackbusv1.NodeTarget{RackId: ref.RackID, NodeId: ref.NodeID},
			Operation: &rackbusv1.JobCommand_ArtifactDownload{ArtifactDownload: &rackbusv1.ArtifactDownload{Cache: cache}},
		}
		if secrets == nil {
			return cmd, nil
		}
		session, err := targets.session(node.FamilyRack)
		if err != nil {
			return nil, err
		}
		cmd.Secrets, err = credentials.SealSecrets(session, id.String(), secrets)
		return cmd, err
	}
	res, err := s.admitter.AdmitLeaf(ctx, admission.Request{
		// One of a deleted object of the same id may not have ended yet.
		Type: job.TypeArtifactDownload, RackID: ref.RackID, OnBusy: admission.OnBusyQueue,
		Nodes: []admission.Node{{Ref: ref, Family: node.FamilyRack, Command: command}},
	})
	s.metrics.leafAdmission(job.TypeArtifactDownload, err)
	return res.JobID, err
}

// startDownload downloads what a stored object lacks, and notes the job with it.
func (s *Server) startDownload(ctx context.Context, id string, secrets *rackbusv1.DownloadSecrets) (job.ID, error) {
	jobID, err := s.admitDownload(ctx, id, secrets)
	if err != nil {
		return jobID, err
	}
	_, err = inCatalog(ctx, s, func(ctx context.Context) (*catalog.Object, error) {
		return s.catalog.SetDownloadJob(ctx, id, jobID.String())
	})
	if err != nil {
		// The download goes on, and its end shows in the object all the same.
		s.log.WarnContext(ctx, "download job of a firmware object not noted", "object", id, "job_id", jobID.String(), "err", err)
	}
	return jobID, nil
}

// cancelDownload asks a download to stop, if it has not ended. Nobody waits for it:
// what it would still write is not looked at any more.
func (s *Server) cancelDownload(ctx context.Context, jobID, reason string) {
	if jobID == "" {
		return
	}
	r, _, err := s.readJob(ctx, jobID)
	if errors.Is(err, errNoJob) || err == nil && r.State.Terminal() {
		return
	}
	if err == nil {
		now := time.Now()
		err = s.opts.Conn.PublishEvent(ctx, &job.Event{
			Kind: job.EventCancelRequested, ID: r.ID, RackID: r.RackID, NodeID: r.NodeID, Type: r.Type, Family: r.Family,
			Description: shorten(reason, maxReasonID), At: now,
			Cancel: &job.Cancel{
				Mode: job.CancelGraceful, Reason: job.CancelReasonOperator, RequestedBy: callerOf(ctx), RequestedAt: now,
				Note: shorten(reason, maxReasonID),
			},
		})
	}
	if err != nil {
		s.log.WarnContext(ctx, "download not asked to stop", "job_id", jobID, "err", err)
	}
}

// dropEphemeral takes back the cache of an apply that came to nothing.
func (s *Server) dropEphemeral(ctx context.Context, cache string, download job.ID) {
	if cache == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timing.BrokerLimit)
	defer cancel()
	if !download.IsZero() {
		s.cancelDownload(ctx, download.String(), "no node needs the files")
	}
	if err := s.ride(ctx, func(ctx context.Context) error { return s.catalog.DropCache(ctx, cache) }); err != nil {
		s.log.WarnContext(ctx, "cache of an apply not dropped", "cache", cache, "err", err)
	}
	s.removeFiles(ctx, cache, true)
}

// reasonOf is what people are told of an error.
func reasonOf(err error) string {
	var refusal *admission.Refusal
	if errors.As(err, &refusal) {
		return refusal.Message
	}
	var own *Error
	if errors.As(err, &own) {
		return own.Message
	}
	if st, ok := status.FromError(statusError(err)); ok && st.Message() != textInternal {
		return st.Message()
	}
	return fmt.Sprintf("%s (%v)", textInternal, err)
}
