// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"time"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/jobs/internal/diagnose"
	"github.com/rackbus/rackbus/services/jobs/internal/timers"
)

// diagnoses returns what starts the examination of nodes whose jobs have failed,
// nil where that is not wanted, and how to end it.
func (s *Service) diagnoses() (timers.Diagnoses, func(), error) {
	if !s.o.Diagnose {
		return nil, func() {}, nil
	}
	o := s.o.Admission
	o.Conn, o.Logger, o.Failpoints = s.o.Conn, s.log, s.o.Failpoints
	if o.Retention == 0 {
		o.Retention = s.o.Retention
	}
	starter, err := diagnose.New(o, s.o.Registerer)
	if err != nil {
		return nil, nil, fmt.Errorf("start automatic diagnoses: %w", err)
	}
	return starter, starter.Close, nil
}

// admissionFrom is how the service admits jobs of its own.
func admissionFrom(cfg *config.Config) admission.Options {
	return admission.Options{
		MaxTrackedJobs: cfg.Workflows.MaxTrackedJobs, Retention: cfg.TerminalJobTTL(),
		QueueDeadline: cfg.Jobs.QueueDeadline, ParkedDeadline: cfg.Jobs.ParkedDeadline,
		MaxParked: cfg.Jobs.MaxParkedPerNode, AdmitTimeout: cfg.BusTiming().AdmitTimeout,
		RunLimits: map[job.Type]time.Duration{job.TypeNodeDiagnostics: cfg.RunDeadline(string(job.TypeNodeDiagnostics))},
	}
}
