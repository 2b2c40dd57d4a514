// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/gnmi"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/attestation"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/certificate"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/factoryreset"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/mtls"
	"github.com/rackbus/rackbus/services/switch-agent/internal/security/password"
)

// securityHandlers are the jobs on certificates, passwords and factory settings.
func (s *Switches) securityHandlers() map[job.Type]agent.Handler {
	t := s.opts.Timing
	return map[job.Type]agent.Handler{
		job.TypeSwitchCertificate: certificate.Install(certificate.Options{
			Switches: s.devices,
			Cluster:  func(sw *device.Switch) certificate.Cluster { return s.cluster(sw) },
			Services: certificate.Greeter{
				Gateway: s.opts.GatewayID, NMXC: nmxcTiming(t),
				GNMI: gnmi.Timing{Connect: t.ControllerConnectTimeout, Call: t.ControllerCallTimeout},
			},
			Timing: certificate.Timing{
				Upload: t.UploadTimeout, HelloTries: t.HelloAttempts, HelloPause: t.HelloInterval,
				VerifyTries: t.CertificateAttempts, VerifyPause: t.CertificateInterval, UnsetPause: t.UnsetPause,
			},
		}),
		job.TypeSwitchMtlsDisable: mtls.Disable(mtls.Options{Switches: s.devices, Pause: t.UnsetPause}),
		job.TypeSwitchFactoryDefaultReset: factoryreset.Reset(factoryreset.Options{
			Switches: s.devices,
			Timing: factoryreset.Timing{
				Settle: t.FactoryResetSettle, Poll: t.FactoryResetPoll, Login: t.SSHLoginTimeout,
				Down: t.FactoryResetDownLimit, Limit: t.FactoryResetLimit,
			},
		}),
		job.TypeSwitchSystemPasswordUpdate: password.Update(password.Options{
			Switches: s.devices,
			Timing:   password.Timing{First: firstLoginTiming(t), Tries: t.HelloAttempts, TryPause: t.HelloInterval},
		}),
	}
}

// evidence answers requests for signed measurements.
func (s *Switches) evidence() agent.QueryHandler {
	t := s.opts.Timing
	return s.query(attestation.New(attestation.Timing{Poll: t.EvidencePoll, Component: t.EvidenceLimit, Total: t.EvidenceTotal}).Collect)
}
