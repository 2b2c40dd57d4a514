// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

// metaRollout lets the nodes of a batch start in waves.
const metaRollout = "rackbus-rollout"

// takesRollout reports whether an RPC starts a batch, which can start its nodes in
// waves.
func takesRollout(method string) bool {
	switch method {
	case rackmanager.RackManager_BatchUpdateFirmware_FullMethodName,
		rackmanager.RackManager_BatchUpdateFirmwareByNodeType_FullMethodName,
		rackmanager.RackManager_ApplyFirmwareObject_FullMethodName,
		rackmanager.RackManager_ApplyStoredFirmwareObject_FullMethodName,
		rackbusv1.Firmware_ApplyFirmwarePlan_FullMethodName,
		rackmanager.RackManager_UpdateSwitchSystemImage_FullMethodName,
		rackmanager.RackManager_ApplySwitchSystemImage_FullMethodName,
		rackmanager.RackManager_ApplyStoredSwitchSystemImage_FullMethodName,
		rackmanager.RackManager_ConfigureSwitchCertificate_FullMethodName,
		rackmanager.RackManager_BatchDisableSwitchMtls_FullMethodName,
		rackmanager.RackManager_UpdateSwitchSystemPassword_FullMethodName,
		rackmanager.RackManager_BatchResetSwitchFactoryDefault_FullMethodName,
		rackmanager.RackManager_BatchResetSwitchSdnFactoryDefault_FullMethodName,
		rackmanagerv2.RackManagerV2_StartSystemValidation_FullMethodName:
		return true
	}
	return false
}

// checkRollout refuses a rollout plan on calls that have no waves: ignoring it would
// start at once what was to start little by little.
func checkRollout(ctx context.Context, method string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if len(md.Get(metaRollout)) == 0 || takesRollout(method) {
		return nil
	}
	return errorf(CodeInvalidArgument, "%s: %s starts no batch of nodes, so it has no waves", metaRollout, method)
}

// rolloutOnlyForBatches is checkRollout for calls.
func rolloutOnlyForBatches(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := checkRollout(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// rolloutOnlyForBatchesStream is checkRollout for streams.
func rolloutOnlyForBatchesStream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := checkRollout(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	return handler(srv, ss)
}

// parseRollout reads the plan of a call, nil without one.
func parseRollout(md metadata.MD, onBusy admission.OnBusy) (*job.RolloutPlan, error) {
	values := md.Get(metaRollout)
	switch {
	case len(values) == 0:
		return nil, nil
	case len(values) > 1:
		return nil, errorf(CodeInvalidArgument, "%s is given %d times; put all settings into one, separated by semicolons", metaRollout, len(values))
	case onBusy == admission.OnBusyQueue || onBusy == admission.OnBusySupersede:
		return nil, errorf(CodeInvalidArgument,
			"%s: a rollout holds its nodes from the start, so none can wait behind another job or replace it; leave out %s, or the rollout",
			metaRollout, metaOnBusy)
	}
	p, err := job.ParseRolloutPlan(values[0])
	if err != nil {
		return nil, errorf(CodeInvalidArgument, "%s: %v", metaRollout, err)
	}
	return &p, nil
}

// defaultDomain stands for the configured default of switch domains.
const defaultDomain = "(default)"

// operationDomain is the switch domain of a command's operation, empty for one that
// has none.
func operationDomain(cmd *rackbusv1.JobCommand) string {
	m := cmd.ProtoReflect()
	which := m.WhichOneof(m.Descriptor().Oneofs().ByName("operation"))
	if which == nil {
		return ""
	}
	op := m.Get(which).Message()
	field := op.Descriptor().Fields().ByName("domain")
	if field == nil || field.Kind() != protoreflect.StringKind {
		return ""
	}
	if domain := op.Get(field).String(); domain != "" {
		return domain
	}
	return defaultDomain
}

// PauseRollout holds a batch before its next wave. The wave under way goes on.
func (j *jobsService) PauseRollout(ctx context.Context, req *rackbusv1.PauseRolloutRequest) (*rackbusv1.PauseRolloutResponse, error) {
	r, err := j.steer(ctx, req.GetJobId(), "rollout paused", func(r job.Record, now time.Time) (job.Record, bool, error) {
		return job.HoldRollout(r, printable(req.GetReason(), maxReasonID), callerOf(ctx), now)
	})
	if err != nil {
		return nil, err
	}
	return &rackbusv1.PauseRolloutResponse{Job: jobMessage(&r)}, nil
}

// ResumeRollout lets a batch that is held or pausing go on with its next wave: the one
// after the wave that the caller saw, or else after the one that is found first. A later
// try, after a change whose answer was lost, must not let one more go.
func (j *jobsService) ResumeRollout(ctx context.Context, req *rackbusv1.ResumeRolloutRequest) (*rackbusv1.ResumeRolloutResponse, error) {
	seen := req.ExpectedWave
	r, err := j.steer(ctx, req.GetJobId(), "rollout resumed", func(r job.Record, now time.Time) (job.Record, bool, error) {
		if r.Rollout != nil {
			if seen == nil {
				seen = new(r.Rollout.Wave)
			}
			if err := job.CheckWave(r, *seen); err != nil {
				return r, false, err
			}
		}
		next, err := job.ResumeRollout(r, now)
		return next, err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return &rackbusv1.ResumeRolloutResponse{Job: jobMessage(&r)}, nil
}

// AbortRollout stops a batch: started children go on, all others are cancelled.
func (j *jobsService) AbortRollout(ctx context.Context, req *rackbusv1.AbortRolloutRequest) (*rackbusv1.AbortRolloutResponse, error) {
	r, err := j.steer(ctx, req.GetJobId(), "rollout aborted", func(r job.Record, now time.Time) (job.Record, bool, error) {
		return job.AbortRollout(r, printable(req.GetReason(), maxReasonID), callerOf(ctx), now)
	})
	if err != nil {
		return nil, err
	}
	return &rackbusv1.AbortRolloutResponse{Job: jobMessage(&r)}, nil
}

// steer changes the rollout of a job in its record and wakes whoever acts for it. The
// record is changed by others all the time; it is read again until the change fits.
func (j *jobsService) steer(ctx context.Context, text, what string, change func(job.Record, time.Time) (job.Record, bool, error)) (job.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, j.opts.Timing.BrokerLimit)
	defer cancel()
	for uncertain := false; ; {
		r, rev, err := j.require(ctx, text)
		if err != nil {
			return r, err
		}
		now := time.Now().UTC().Round(0)
		next, changed, err := change(r, now)
		if uncertain && (errors.Is(err, job.ErrRolloutUnderWay) || errors.Is(err, job.ErrRolloutMoved)) {
			return r, nil // by the change whose answer was lost
		}
		if err != nil {
			return r, errorf(CodeFailedPrecondition, "job %s: %v", r.ID, err)
		}
		if !changed {
			return r, nil
		}
		tx := j.opts.Conn.Begin()
		tx.ReplaceRecord(&next, rev)
		if at, due := next.RolloutDue(); due {
			if at.IsZero() {
				at = now
			}
			tx.ArmTimer(bus.TimerRollout, next.ID, at)
		}
		_, err = tx.Commit(ctx)
		switch {
		case err == nil:
			j.noteRollout(ctx, &next, what, now)
			j.log.InfoContext(ctx, "rollout steered", "job_id", next.ID.String(), "change", what, "wave", next.Rollout.Wave,
				"reason", next.Rollout.Reason, "peer", callerOf(ctx))
			return next, nil
		case errors.Is(err, bus.ErrConflict):
			// An earlier answer may have been lost, and this conflict be with our own change.
			uncertain = uncertain || errors.Is(err, bus.ErrOutcomeUnknown)
		case errors.Is(err, bus.ErrUnavailable), errors.Is(err, bus.ErrOutcomeUnknown):
			uncertain = true // whether it was done shows when the record is read again
			if pause(ctx, j.opts.Timing.BrokerPause) != nil {
				return r, err
			}
		default:
			return r, err
		}
	}
}

// noteRollout tells the history of a job who steered it, as far as the broker takes it.
func (j *jobsService) noteRollout(ctx context.Context, r *job.Record, what string, now time.Time) {
	text := what + " by " + callerOf(ctx)
	if r.Rollout.Reason != "" {
		text += ": " + r.Rollout.Reason
	}
	err := j.opts.Conn.PublishEvent(ctx, &job.Event{
		Kind: job.EventNote, ID: r.ID, RackID: r.RackID, Type: r.Type, Description: text, At: now,
	})
	if err != nil {
		j.log.WarnContext(ctx, "change of a rollout not noted in the history", "job_id", r.ID.String(), "err", err)
	}
}
