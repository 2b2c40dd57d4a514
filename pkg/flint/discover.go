// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"context"
	"errors"
	"slices"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// hostReady switches the host on and waits for its operating system. One that
// stays away is recovered by a later stage.
func (r *run) hostReady(ctx context.Context) error {
	return r.curing(ctx, "wait for the host operating system", r.awaitHost)
}

// hostReadyAgain does so behind the recovery, which is the last try.
func (r *run) hostReadyAgain(ctx context.Context) error {
	if !r.state.Cycled {
		return agent.Skip("the host needed no recovery")
	}
	return fail(phaseValidation, "wait for the host operating system after an AUX power cycle", r.awaitHost(ctx))
}

func (r *run) awaitHost(ctx context.Context) error {
	if err := r.u.Power.EnsureOn(ctx); err != nil {
		return err
	}
	h, err := r.f.connect(r.t)
	if err != nil {
		return err
	}
	defer h.close()
	return h.waitReady(ctx, r.t, r.progress)
}

// discover finds the devices.
func (r *run) discover(ctx context.Context) error {
	if r.state.Recover != "" {
		return agent.Skip("the host has to be recovered first")
	}
	return r.curing(ctx, "find the network devices", r.find)
}

func (r *run) discoverAgain(ctx context.Context) error {
	if !r.state.Cycled {
		return agent.Skip("the devices are found")
	}
	return fail(phaseValidation, "find the network devices after an AUX power cycle", r.find(ctx))
}

// curing notes a failure that the recovery may cure, instead of failing with it.
func (r *run) curing(ctx context.Context, doing string, work func(context.Context) error) error {
	r.state.Recover = ""
	err := work(ctx)
	if err == nil || ctx.Err() != nil || passes(err) || !curable(err) || r.state.Cycled {
		return fail(phaseValidation, doing, err)
	}
	r.t.Logger().Warn("host needs a recovery", "op", "discover", "err", err)
	r.state.Recover = doing + ": " + err.Error()
	return r.save()
}

func (r *run) find(ctx context.Context) error {
	h, err := r.f.connect(r.t)
	if err != nil {
		return err
	}
	defer h.close()
	if _, err := h.plain(ctx, toolsLine, h.timing.Query); err != nil {
		var exit *ssh.ExitError
		if errors.As(err, &exit) {
			return agent.Fail(job.FailureHostToolsMissing, phaseValidation,
				"the host lacks NVIDIA's firmware tools: mst and flint have to be installed", err)
		}
		return err
	}
	// A device that is being written does not answer, and must not lose its power.
	if err := h.idle(ctx, r.t); err != nil {
		return err
	}
	found, err := h.devices(ctx)
	if err != nil {
		return err
	}
	kinds := r.kinds()
	if err := CheckDevices(found, r.u.Counts, kinds); err != nil {
		return err
	}
	r.state.Found = nil
	for _, d := range found {
		if !slices.Contains(kinds, d.Kind) {
			continue
		}
		if d.Firmware, err = h.query(ctx, d.Path); err != nil {
			return err
		}
		r.state.Found = append(r.state.Found, d)
	}
	return r.save()
}

// prepareCycle skips the recovery of a host that needs none.
func (r *run) prepareCycle(context.Context) error {
	if r.state.Recover == "" {
		return agent.Skip("the host needs no recovery")
	}
	return nil
}

// cycle is the one AUX power cycle, before anything was flashed.
func (r *run) cycle(ctx context.Context) error {
	r.state.Cycled = true
	r.t.InFlight("AUX power cycle")
	if err := r.u.State.Save(ctx, r.state); err != nil {
		return err
	}
	err := r.u.Power.AuxCycle(ctx)
	if err == nil {
		err = r.t.Failpoint(agent.FailAfterDeviceChange)
	}
	return fail(phaseValidation, "recover the host ("+r.state.Recover+")", err)
}

// observeCycle takes a cycle that was begun for one that has happened: the host is
// switched on and probed again in any case, and a second cycle would help no more.
func (r *run) observeCycle(context.Context) (agent.Observation, error) {
	if !r.state.Cycled {
		return agent.ObservedNotStarted, nil
	}
	return agent.ObservedDone, nil
}
