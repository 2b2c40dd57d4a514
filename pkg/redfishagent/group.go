// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// groupState is what an update has learned about one group of packages.
type groupState struct {
	Activation activationState `json:"activation"`
	Activated  bool            `json:"activated,omitempty"`
	// Report is the last comparison of versions behind the group.
	Report *checkReport `json:"report,omitempty"`
}

// group is packages that come into force together.
type group struct {
	u    *update
	plan flashplan.Group
	i    int
	// first is the place of its first package among all.
	first int
	// inBand is the work on an in-band group.
	inBand InBandRun
}

func (g *group) state() *groupState { return &g.u.state.Groups[g.i] }

// named puts the group into the name of a stage when there are several.
func (g *group) named(stage string) string {
	if g.plan.Name == "" {
		return stage
	}
	return stage + "_" + g.plan.Name
}

func (g *group) stages() []agent.Stage {
	if g.inBand != nil {
		before, after := g.inBand.Stages(g.named(""))
		stages := append(before, g.activation()...)
		return append(stages, after...)
	}
	var stages []agent.Stage
	for n := range g.plan.Items {
		stages = append(stages, g.pkg(n).stages()...)
	}
	if g.plan.Activate {
		stages = append(stages, g.activation()...)
		if g.hostTells() {
			stages = append(stages, agent.Stage{
				Name: g.named("host_ready"), Description: "Waiting for the host operating system",
				Resume: agent.Repeatable, Interruptible: true, Run: g.hostReady,
			})
		}
	}
	if g.plan.Verified() {
		stages = append(stages, agent.Stage{
			Name: g.named("verify"), Description: "Verifying activated firmware versions",
			Resume: agent.Repeatable, Interruptible: true, Run: g.verify,
		})
	}
	return stages
}

// applied reports whether any package was sent.
func (g *group) applied() bool {
	if g.inBand != nil {
		return g.inBand.Applied()
	}
	for _, item := range g.plan.Items {
		if g.u.state.Targets[item.Index].Uploaded {
			return true
		}
	}
	return false
}

// hostTells reports whether the node's host can be asked whether it is up: types
// with in-band devices, and a host endpoint to log in to.
func (g *group) hostTells() bool {
	t, ok := node.ByID(g.u.c.Profile().NodeType)
	return ok && t.InBand && g.u.d.opts.InBand != nil && g.u.t.HasCredentials(node.EndpointHost)
}

func (g *group) hostReady(ctx context.Context) error {
	u := g.u
	u.current = nil
	if !g.applied() {
		return agent.Skip("nothing was installed")
	}
	err := u.d.opts.InBand.HostReady(ctx, u.t, func(text string) { u.t.Progress(100, text) })
	return fail(phaseActivation, "", err)
}

// pkgStages are the stages of one package of an update.
type pkgStages struct {
	u    *update
	g    *group
	item flashplan.Item
	// i is the package's place among all n, from 0.
	i, n int
	// before is the package that was sent to the same controller just before it.
	before *targetState
	target *rackbusv1.FirmwareUpdateTarget
	label  string
}

func (g *group) pkg(n int) *pkgStages {
	u, item := g.u, g.plan.Items[n]
	p := &pkgStages{
		u: u, g: g, item: item, i: g.first + n, n: len(u.cmd.GetTargets()),
		target: u.cmd.GetTargets()[item.Index], label: item.Label(),
	}
	if n > 0 {
		p.before = &u.state.Targets[g.plan.Items[n-1].Index]
	}
	return p
}

func (p *pkgStages) stages() []agent.Stage {
	t := &p.u.d.opts.Timing
	of := fmt.Sprintf("target %d/%d: %s", p.i+1, p.n, p.label)
	stages := []agent.Stage{{
		Name: p.name("check"), Description: "Checking the node for " + of,
		Resume: agent.Repeatable, Interruptible: true, Run: p.working(p.check),
		Attempts: checkAttempts, Pause: t.TaskPoll.Interval,
	}}
	if p.item.KeepConfiguration {
		stages = append(stages, agent.Stage{
			Name: p.name("preserve"), Description: "Making the BMC keep its configuration for " + of,
			Resume: agent.Repeatable, Interruptible: true, Run: p.working(p.preserve),
		})
	}
	stages = append(stages, agent.Stage{
		Name: p.name("upload"), Description: "Uploading " + of,
		Resume: agent.Once, Prepare: p.working(p.prepare), Run: p.working(p.upload), Observe: p.observe,
		Attempts: t.UploadAttempts, Pause: t.UploadPause, Limit: p.uploadLimit(),
	}, agent.Stage{
		Name: p.name("install"), Description: "Running firmware workflow for target " + p.label,
		Resume: agent.Resumable, Run: p.working(p.install), Limit: p.installLimit(),
	})
	if p.u.c.Profile().PowerUnitsPath != "" {
		stages = append(stages, agent.Stage{
			Name: p.name("repair"), Description: "Updating power supplies one by one for " + of,
			Resume: agent.Resumable, Run: p.working(p.repair),
			// It can be left between two of them.
			Limit: p.u.c.UnitLimit(p.target.GetSizeBytes()) + t.UnitRetrySettle,
		})
	}
	return stages
}

// name numbers a stage when there are several packages.
func (p *pkgStages) name(stage string) string {
	if p.n == 1 {
		return stage
	}
	return fmt.Sprintf("%s_%d", stage, p.i+1)
}

// working notes which package a stage is about.
func (p *pkgStages) working(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		p.u.current = p.target
		return run(ctx)
	}
}

func (p *pkgStages) state() *targetState { return &p.u.state.Targets[p.item.Index] }

// save puts the update's state where the next checkpoint takes it from.
func (p *pkgStages) save() error { return p.u.save() }

// send is how the package is pushed, now that its content is known.
func (p *pkgStages) send() flashplan.Send {
	if p.state().HMC {
		return p.item.ForBaseboard().Send
	}
	return p.item.Send
}
