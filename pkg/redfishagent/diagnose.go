// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/diagnostics"
)

// CollectorsFor adds collectors for the node of a task to those that go by Redfish;
// nil says that there are none.
type CollectorsFor func(t *agent.Task) ([]diagnostics.Collector, error)

// WithCollectors gives the agent further collectors for node diagnostics.
func WithCollectors(more CollectorsFor) With {
	return func(o *Options) { o.Collectors = append(o.Collectors, more) }
}

// diagnosis is the workflow of node diagnostics.
func (d *Devices) diagnosis() *diagnostics.Workflow {
	o := d.opts.Diagnostics
	o.Version, o.Lost = d.opts.Version, passes
	o.Collectors = d.collectors
	return diagnostics.New(o)
}

// collectors examines the node of a task over Redfish and by what else the agent
// has.
func (d *Devices) collectors(t *agent.Task) (all []diagnostics.Collector, closeAll func(), err error) {
	c, err := d.client(t, d.userAgent(t), t.Logger())
	if err != nil {
		return nil, nil, fail(phaseValidation, "", err)
	}
	all = Collectors(c)
	for _, more := range d.opts.Collectors {
		further, err := more(t)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, further...)
	}
	return all, c.Close, nil
}
