// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"time"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// The limits of the stages that cannot be cut, as somebody is told them who asks
// such a job to stop.

// uploadLimit is how long the package's upload may take.
func (p *pkgStages) uploadLimit() time.Duration { return p.u.c.UploadLimit(p.target.GetSizeBytes()) }

// installLimit is how long the device may take to install the package: as long as
// its task may run, and then for the version to show if the task gets lost.
func (p *pkgStages) installLimit() time.Duration {
	t := &p.u.d.opts.Timing
	task := t.TaskPoll.Limit
	if task <= 0 {
		task = p.u.c.Profile().TaskLimit
	}
	return max(task+t.LostTaskWindow, t.UntrackedLimit)
}

// stepsLimit is how long steps of an activation may take together.
func (u *update) stepsLimit(steps []redfish.Step) time.Duration {
	var limit time.Duration
	for _, s := range steps {
		limit += u.c.StepLimit(s)
	}
	return limit
}

// tracked notes the task with which the device installs the package.
func (p *pkgStages) tracked(task redfish.TaskRef) {
	p.state().Task = task
	p.following()
}

// following tells which task of the device is under way.
func (p *pkgStages) following() {
	task := p.state().Task
	switch {
	case task.URI != "":
		p.u.t.InFlight("task " + task.URI)
	case !task.IsZero():
		p.u.t.InFlight("task " + task.String())
	}
}
