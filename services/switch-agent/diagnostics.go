// SPDX-License-Identifier: Apache-2.0

package switchagent

import (
	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/services/switch-agent/internal/device"
	"github.com/rackbus/rackbus/services/switch-agent/internal/survey"
)

// diagnosis is the workflow of node diagnostics.
func (s *Switches) diagnosis() *diagnostics.Workflow {
	o := s.opts.Diagnostics
	o.Version, o.Lost, o.Collectors = s.opts.Device.Version, device.Passes, s.collectors
	return diagnostics.New(o)
}

// collectors examine the switch of a task.
func (s *Switches) collectors(t *agent.Task) ([]diagnostics.Collector, func(), error) {
	sw, err := s.devices.Open(t, "", t.Logger())
	if err != nil {
		return nil, nil, device.Failure("prepare", "", job.FailureInvalidArgument, err)
	}
	return survey.Collectors(sw, survey.Options{
		Fabric: s.cluster(sw), BootLimit: s.opts.Timing.SSHExecTimeout,
	}), sw.Close, nil
}
