// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/fabric"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// elsewhere is why apps of the cluster are left alone on a switch that does not run
// the fabric: the cluster would have to be switched on, and the rack had two.
const elsewhere = "another switch of the rack runs the scale-up fabric"

// bind returns the step that binds the certificate to a service. A job that was
// asked to stop stops in front of it, but not within it.
func (w *work) bind(s security.Service) func(context.Context) error {
	stage := stageBind + string(s)
	return func(ctx context.Context) error {
		w.state.Details.Set(stage, map[string]any{"service": string(s)})
		if s.App() != "" && w.cmd.GetFabricElsewhere() {
			w.state.Skipped = append(w.state.Skipped, s)
			return errors.Join(w.save(ctx), &skippedError{elsewhere})
		}
		// An earlier owner may be in the middle of an app, which has no revision.
		begun := w.state.Revisions[stage] != "" || s.App() != "" && w.t.Epoch() > 1
		if !begun {
			if err := w.t.SafePoint(ctx); err != nil {
				return err
			}
		}
		if err := w.bindService(ctx, s, stage); err != nil {
			return err
		}
		if !slices.Contains(w.state.Bound, s) {
			w.state.Bound = append(w.state.Bound, s)
		}
		if err := w.save(ctx); err != nil {
			return err
		}
		return w.t.Failpoint(agent.FailAfterDeviceChange)
	}
}

func (w *work) bindService(ctx context.Context, s security.Service, stage string) error {
	id, ca := w.cmd.GetEntityCertificateId(), w.cmd.GetCaCertificateId()
	switch {
	case s == security.ServiceNVUE:
		return w.bindNVUE(ctx, stage)
	case s == security.ServiceGNMI:
		return w.bindGNMI(ctx, stage)
	case w.opts.Cluster == nil:
		return errors.New("this agent has no steps for apps of the cluster")
	default:
		return fabricFailure(stage, w.opts.Cluster(w.sw).Bind(ctx, s.App(), id, ca))
	}
}

// fabricFailure tells the errors of the steps of the fabric.
func fabricFailure(stage string, err error) error {
	switch {
	case errors.Is(err, fabric.ErrNotConverged):
		return device.Failure(stage, "", job.FailureTaskTimeout, err)
	case errors.Is(err, fabric.ErrPrecondition), errors.Is(err, fabric.ErrUnreadable):
		return device.Failure(stage, "", job.FailurePreconditionFailed, err)
	default:
		return security.Failure(stage, "", err)
	}
}

func (w *work) bindGNMI(ctx context.Context, stage string) error {
	id, ca := w.cmd.GetEntityCertificateId(), w.cmd.GetCaCertificateId()
	edits := []nvue.Edit{nvue.SetGNMICertificate(id), nvue.SetGNMIClientCA(ca)}
	inForce := func(ctx context.Context) (bool, error) {
		now, err := w.sw.NVUE.GNMI(ctx)
		if err != nil || now.Certificate != id {
			return false, err
		}
		nowCA, err := w.sw.NVUE.GNMIClientCA(ctx)
		return nowCA == ca, err
	}
	rev, err := w.stage(ctx, stage, edits, inForce)
	if err != nil {
		return err
	}
	if rev == "" {
		return w.sw.NVUE.SaveRevision(ctx, "")
	}
	return w.finish(ctx, rev)
}

// stage brings a change as far as its application, from wherever an earlier owner
// left it. What the switch says counts, not what was noted. It returns no revision
// when the change is in force and its revision forgotten.
func (w *work) stage(
	ctx context.Context, stage string, edits []nvue.Edit, inForce func(context.Context) (bool, error),
) (nvue.Revision, error) {
	rev := w.state.Revisions[stage]
	if rev != "" {
		s, known, err := w.recall(ctx, rev)
		switch {
		case err != nil:
			return "", err
		case known && (!s.Untouched || s.Verdict != nvue.RevisionPending):
			return rev, nil // applied, or being applied
		case !known:
			var there bool
			err := w.reach(ctx, func(ctx context.Context) (err error) {
				there, err = inForce(ctx)
				return err
			})
			if err != nil || there {
				return "", err
			}
			rev = ""
		}
	}
	if rev == "" {
		var err error
		if rev, err = w.sw.NVUE.CreateRevision(ctx); err != nil {
			return "", err
		}
		if w.state.Revisions == nil {
			w.state.Revisions = map[string]nvue.Revision{}
		}
		w.state.Revisions[stage] = rev
		w.t.InFlight("revision " + string(rev))
		if err := w.save(ctx); err != nil {
			return "", err
		}
		if err := w.t.Failpoint(agent.FailAfterDeviceChange); err != nil {
			return "", err
		}
	}
	// Staging the same twice changes nothing.
	if err := w.sw.NVUE.StageRevision(ctx, rev, edits...); err != nil {
		return "", err
	}
	return rev, w.t.Failpoint(agent.FailAfterDeviceChange)
}

// recall looks at the revision of an earlier owner; known is false when the switch has
// forgotten it.
func (w *work) recall(ctx context.Context, rev nvue.Revision) (s nvue.RevisionStatus, known bool, err error) {
	err = w.reach(ctx, func(ctx context.Context) (err error) {
		s, err = w.sw.NVUE.LookAtRevision(ctx, rev)
		return err
	})
	if errors.Is(err, nvue.ErrNotFound) {
		return s, false, nil
	}
	return s, true, err
}

// reach reads from a switch that an earlier owner may have left in the middle of the
// change of its own certificate: the way to it may be another from one try to the next.
func (w *work) reach(ctx context.Context, read func(context.Context) error) error {
	for n := 1; ; n++ {
		err := read(ctx)
		if err == nil || !lost(err) || n >= w.timing.HelloTries || ctx.Err() != nil {
			return err
		}
		if err := w.t.Sleep(ctx, w.timing.HelloPause); err != nil {
			return err
		}
		if _, err := w.sw.NVUE.Bootstrap(ctx, w.opts.Switches.TLS(), w.cmd.GetDomain()); err != nil {
			w.t.Logger().Debug("switch not reached yet", "op", "bind", "attempt", n, "err", err)
		}
	}
}

// finish applies a revision if that was not done, waits for it, and saves it, also
// when nothing changed: an interrupted job may have lacked just that.
func (w *work) finish(ctx context.Context, rev nvue.Revision) error {
	out, err := w.sw.NVUE.FinishRevision(ctx, rev)
	if err != nil || out.Saved {
		return err
	}
	return w.sw.NVUE.SaveRevision(ctx, rev)
}

// verification is what the switch shows of the bindings, for result_json.
type verification struct {
	EntityID    string                `json:"entity_certificate_id"`
	CAID        string                `json:"ca_certificate_id"`
	ValidTo     string                `json:"valid_to"`
	Installed   []string              `json:"installed_services"`
	CA          rawObject             `json:"ca_certificate"`
	NVUE        *clientCA             `json:"nvue_mtls"`
	GNMI        *clientCA             `json:"gnmi_mtls"`
	ClusterApps map[string]appBinding `json:"cluster_apps"`
}

type clientCA struct {
	CA string `json:"ca-certificate"`
}

type appBinding struct {
	Certificate string `json:"certificate"`
	CA          string `json:"ca_certificate"`
	Encryption  string `json:"encryption"`
}

// notBoundError says that a switch shows another binding than it was told.
type notBoundError struct{ what, now, wanted string }

func (e *notBoundError) Error() string {
	return fmt.Sprintf("the %s is %q and not %q", e.what, e.now, e.wanted)
}

// mismatch reports a binding that is not as wanted, which may still come.
func mismatch(what, now, wanted string) error {
	if now == wanted {
		return nil
	}
	return agent.Retry(0, &notBoundError{what, now, wanted})
}

// lost reports an NVUE error that comes with a change of NVUE's own certificate.
func lost(err error) bool {
	return err != nil && !device.Passes(err) &&
		(nvue.OutcomeUnknown(err) || nvue.Retryable(err) || errors.Is(err, nvue.ErrUnauthenticated))
}
