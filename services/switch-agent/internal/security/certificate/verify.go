// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/switchtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security"
)

// rawObject is a document of the switch.
type rawObject = json.RawMessage

// failureOf is the cause of failure that a fault of our own material stands for.
func failureOf(err error) job.FailureCode {
	switch {
	case switchtls.Transient(err):
		return job.FailureHostUnreachable
	case errors.As(err, new(*switchtls.Error)):
		return job.FailureCertificateMaterial
	default:
		return job.FailurePreconditionFailed
	}
}

// bound are the services that this job has bound, in order.
func (w *work) bound() []security.Service {
	return slices.DeleteFunc(slices.Clone(w.services), func(s security.Service) bool {
		return slices.Contains(w.state.Skipped, s)
	})
}

// verify reads the bindings back. One that does not show yet may come.
func (w *work) verify(ctx context.Context) error {
	v := &verification{
		EntityID: w.cmd.GetEntityCertificateId(), CAID: w.cmd.GetCaCertificateId(), ClusterApps: map[string]appBinding{},
	}
	steps := []func(context.Context, *verification) error{w.verifyCertificate, w.verifyCA}
	for _, s := range w.bound() {
		switch {
		case s == security.ServiceNVUE:
			steps = append(steps, w.verifyNVUE)
		case s == security.ServiceGNMI:
			steps = append(steps, w.verifyGNMI)
		default:
			steps = append(steps, w.verifyApp(s.App()))
		}
	}
	for _, step := range steps {
		if err := step(ctx, v); err != nil {
			var off *notBoundError
			if errors.As(err, &off) {
				return agent.Retry(0, agent.Fail(job.FailurePreconditionFailed, stageVerify, err.Error(), err))
			}
			return err
		}
	}
	w.state.Verification = v
	w.state.Details.Set(stageVerify, map[string]any{"service_verification": v})
	return w.t.Set(w.state)
}

func (w *work) verifyCertificate(ctx context.Context, v *verification) error {
	now, err := w.sw.NVUE.Certificate(ctx, v.EntityID)
	if err != nil {
		return err
	}
	refuse := func(text string) error {
		return agent.Fail(job.FailurePreconditionFailed, stageVerify, text, nil)
	}
	switch {
	case now.ValidTo == "":
		return refuse("the switch does not say until when the certificate is valid")
	case now.NotAfter.IsZero():
		return refuse(fmt.Sprintf("the switch says that the certificate is valid to %q, which is no date", now.ValidTo))
	case !time.Now().Before(now.NotAfter):
		return refuse("the certificate on the switch has expired at " + now.ValidTo)
	}
	v.ValidTo, v.Installed = now.ValidTo, now.Installed
	if v.Installed == nil {
		v.Installed = []string{}
	}
	for _, s := range w.bound() {
		if name := s.InstalledName(); name != "" && !slices.Contains(now.Installed, name) {
			return agent.Retry(0, &notBoundError{"list of services that use the certificate", fmt.Sprint(now.Installed), "with " + name})
		}
	}
	return nil
}

func (w *work) verifyCA(ctx context.Context, v *verification) (err error) {
	v.CA, err = w.sw.NVUE.CACertificate(ctx, v.CAID)
	return err
}

func (w *work) verifyNVUE(ctx context.Context, v *verification) error {
	now, err := w.sw.NVUE.APIClientCA(ctx)
	if err != nil {
		return err
	}
	v.NVUE = &clientCA{now}
	return mismatch("CA of the clients of NVUE", now, v.CAID)
}

func (w *work) verifyGNMI(ctx context.Context, v *verification) error {
	now, err := w.sw.NVUE.GNMIClientCA(ctx)
	if err != nil {
		return err
	}
	v.GNMI = &clientCA{now}
	return mismatch("CA of the clients of the telemetry interface", now, v.CAID)
}

func (w *work) verifyApp(app string) func(context.Context, *verification) error {
	return func(ctx context.Context, v *verification) error {
		var b appBinding
		for _, leaf := range []struct {
			what, wanted string
			read         func(context.Context, string) (string, error)
			now          *string
		}{
			{"certificate", v.EntityID, w.sw.NVUE.ManagerCertificate, &b.Certificate},
			{"CA of the clients", v.CAID, w.sw.NVUE.ManagerClientCA, &b.CA},
			{"encryption", nvue.MTLS, w.sw.NVUE.ManagerEncryption, &b.Encryption},
		} {
			now, err := leaf.read(ctx, app)
			if err != nil {
				return err
			}
			if err := mismatch(leaf.what+" of "+app, now, leaf.wanted); err != nil {
				return err
			}
			*leaf.now = now
		}
		v.ClusterApps[app] = b
		return nil
	}
}

// result is the result_json of the job.
func (w *work) result(err error) string {
	timeline := security.Timeline(w.t, w.state.Details)
	if len(timeline.Stages) == 0 {
		// It failed before the first stage.
		at := time.Now()
		timeline = job.NewTimeline(w.t.ID(), w.names, at).SkipRemaining(at)
	}
	out := map[string]any{
		"status": security.Status(err), "domain": w.cmd.GetDomain(),
		"ca_certificate_id": w.cmd.GetCaCertificateId(), "entity_certificate_id": w.cmd.GetEntityCertificateId(),
		"remote_dir": w.directory(), "services": security.Labels(w.state.Bound), "timing_summary": timeline,
	}
	if len(w.state.Skipped) > 0 {
		out["skipped_services"] = security.Labels(w.state.Skipped)
	}
	if err == nil {
		out["service_verification"] = w.state.Verification
		for test, outcome := range w.state.Greeted {
			out[test] = outcome
		}
	}
	return security.Encode(out)
}
