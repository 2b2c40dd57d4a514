// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/switchtls"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// The services of a switch by the labels that commands and results use.
const (
	serviceNVUE      = "nvue-api"
	serviceTelemetry = "scale-up-fabric-telemetry"
	serviceManager   = "scale-up-fabric-manager"
	serviceInterface = "scale-up-fabric-telemetry-interface"
)

// serviceLabels are the services of a request, each once and in its order. Errors are
// for the caller.
func serviceLabels(services []rackmanager.SwitchService) ([]string, error) {
	if len(services) == 0 {
		return nil, errorf(CodeInvalidArgument, "services must name at least one service of the switch")
	}
	var out []string
	for _, s := range services {
		var label string
		switch s {
		case rackmanager.SwitchService_SWITCH_SERVICE_NVUE_API:
			label = serviceNVUE
		case rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY:
			label = serviceTelemetry
		case rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_MANAGER:
			label = serviceManager
		case rackmanager.SwitchService_SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY_INTERFACE:
			label = serviceInterface
		default:
			return nil, errorf(CodeInvalidArgument, "services names %d, which is no service of a switch", int32(s))
		}
		if !slices.Contains(out, label) {
			out = append(out, label)
		}
	}
	return out, nil
}

// ConfigureSwitchCertificate admits a job for each switch that installs certificates
// for its services. All switches get the same material under the same names.
func (m *rackManager) ConfigureSwitchCertificate(ctx context.Context, req *rackmanager.ConfigureSwitchCertificateRequest,
) (*rackmanager.ConfigureSwitchCertificateResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	meta, idem, err := m.jobCall(ctx, "ConfigureSwitchCertificate", req)
	if err != nil {
		return nil, err
	}
	b := &switchJobs{
		typ: job.TypeSwitchCertificate, nodes: nodes, noun: "switch certificate install",
		poll: "GetConfigureSwitchCertificateJobStatus",
	}
	created := func(res admission.Result) *rackmanager.ConfigureSwitchCertificateResponse {
		out := &rackmanager.ConfigureSwitchCertificateResponse{Response: b.answer(res)}
		eachAdmitted(res, func(nodeID, jobID string) {
			out.Jobs = append(out.Jobs, &rackmanager.ConfigureSwitchCertificateJobInfo{NodeId: nodeID, JobId: jobID})
		})
		return out
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil || found {
		return created(res), err
	}
	install, secrets, err := m.planCertificate(req, time.Now())
	if err != nil {
		return nil, err
	}
	if secrets != nil {
		defer clear(secrets.Key)
		b.secrets = secrets
	}
	if len(nodes) == 0 {
		return nil, errorf(CodeInvalidArgument, textNoNodes)
	}
	elsewhere := make(map[node.Ref]bool)
	if !install.GetUnset() && (slices.Contains(install.GetServices(), serviceManager) || slices.Contains(install.GetServices(), serviceTelemetry)) {
		elsewhere = m.fabricElsewhere(ctx, nodes, install.GetDomain())
	}
	b.command = func(cmd *rackbusv1.JobCommand) {
		op := proto.CloneOf(install)
		op.FabricElsewhere = elsewhere[node.Ref{RackID: cmd.GetTarget().GetRackId(), NodeID: cmd.GetTarget().GetNodeId()}]
		cmd.Operation = &rackbusv1.JobCommand_SwitchCertificate{SwitchCertificate: op}
	}
	res, err := m.admitSwitches(ctx, b, meta.request(nodes[0].ref.RackID, idem))
	if refusal, ok := isRefusal(err); ok {
		return nil, errorf(CodeResourceExhausted, "%s: %s", b.parentFailed(), refusal.Message)
	}
	if err != nil {
		return nil, err
	}
	return created(res), nil
}

// planCertificate checks a request, one rule after the other, and reads the material
// once for all switches. Without secrets, the services lose mutual TLS.
func (s *Server) planCertificate(req *rackmanager.ConfigureSwitchCertificateRequest, now time.Time,
) (*rackbusv1.SwitchCertificate, *rackbusv1.SwitchCertificateSecrets, error) {
	store := s.opts.SwitchTLS
	domain := ""
	if !store.Insecure() {
		var err error
		if domain, err = store.Domain(req.GetDomain()); err != nil {
			return nil, nil, materialError(err)
		}
	}
	services, err := serviceLabels(req.GetServices())
	if err != nil {
		return nil, nil, err
	}
	if store.Insecure() {
		return &rackbusv1.SwitchCertificate{Services: services, Unset: true}, nil, nil
	}
	if req.GetTestHello() && !slices.ContainsFunc(services, func(label string) bool { return label != serviceTelemetry }) {
		return nil, nil, errorf(CodeInvalidArgument,
			"test_hello needs one of the services SWITCH_SERVICE_NVUE_API, SWITCH_SERVICE_SCALE_UP_FABRIC_MANAGER "+
				"and SWITCH_SERVICE_SCALE_UP_FABRIC_TELEMETRY_INTERFACE")
	}
	material, err := store.Installed(domain)
	if err != nil {
		return nil, nil, materialError(err)
	}
	// What is bound to these would shut us out if we had no identity to show.
	if req.GetTestHello() || slices.Contains(services, serviceNVUE) {
		if _, err := store.Client(domain); err != nil {
			return nil, nil, materialError(err)
		}
	}
	run, name := runID(now), certificateDomain(domain)
	return &rackbusv1.SwitchCertificate{
			Services: services, TestHello: req.GetTestHello(), Domain: domain, RunId: run,
			CaCertificateId: fmt.Sprintf("rms-%s-ca-%s", name, run), EntityCertificateId: fmt.Sprintf("rms-%s-cert-%s", name, run),
		}, &rackbusv1.SwitchCertificateSecrets{
			Ca: material.CA, Certificate: material.Certificate, Key: material.Key.Bytes(),
		}, nil
}

// materialError tells the caller that the server cannot give switches what they need.
func materialError(err error) error {
	if switchtls.Transient(err) {
		return &Error{CodeUnavailable, err.Error(), err}
	}
	return &Error{CodeFailedPrecondition, err.Error(), err}
}

// runID names one installation by its moment, to the millisecond.
func runID(now time.Time) string {
	now = now.UTC()
	return fmt.Sprintf("%s_%03d", now.Format("2006-01-02_15-04-05"), now.Nanosecond()/int(time.Millisecond))
}

// certificateDomain is a domain as it may stand in the id of a certificate.
func certificateDomain(domain string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-':
			return r
		}
		return '-'
	}, domain)
}

// BatchDisableSwitchMtls admits a job for each switch that takes mutual TLS from its
// services. It needs no TLS material.
func (m *rackManager) BatchDisableSwitchMtls(ctx context.Context, req *rackmanager.BatchDisableSwitchMtlsRequest,
) (*rackmanager.BatchDisableSwitchMtlsResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	services, err := serviceLabels(req.GetServices())
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, errorf(CodeInvalidArgument, textNoNodes)
	}
	meta, idem, err := m.jobCall(ctx, "BatchDisableSwitchMtls", req)
	if err != nil {
		return nil, err
	}
	b := &switchJobs{
		typ: job.TypeSwitchMtlsDisable, nodes: nodes, noun: "switch mTLS disable", poll: pollJob, listed: true,
		command: func(cmd *rackbusv1.JobCommand) {
			cmd.Operation = &rackbusv1.JobCommand_SwitchMtlsDisable{SwitchMtlsDisable: &rackbusv1.SwitchMtlsDisable{Services: services}}
		},
	}
	answer := func(r *rackmanager.NodeBatchResponse) (*rackmanager.BatchDisableSwitchMtlsResponse, error) {
		return &rackmanager.BatchDisableSwitchMtlsResponse{Response: r}, nil
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil {
		return nil, err
	} else if found {
		return answer(b.answer(res))
	}
	res, err := m.admitSwitches(ctx, b, meta.request(nodes[0].ref.RackID, idem))
	if refused, ok := b.refused(err); ok {
		return answer(refused)
	}
	if err != nil {
		return nil, err
	}
	return answer(b.answer(res))
}
