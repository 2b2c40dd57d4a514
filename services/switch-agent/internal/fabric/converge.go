// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// configure brings the primary's controller to the wanted configuration and waits
// until its control plane is configured.
func (r *reconciliation) configure(ctx context.Context) error {
	c, err := r.primary(ctx)
	if err != nil {
		return err
	}
	if m := r.memory.Restart; m != nil {
		if err := r.restart(ctx, c, m.Stuck); err != nil {
			return err
		}
	}
	matches, err := r.matches(ctx, c)
	if err != nil {
		return err
	}
	if !matches {
		if err := r.configurePrimary(ctx, c); err != nil {
			return err
		}
	}
	if r.memory.RestartDue {
		if err := r.restart(ctx, c, false); err != nil {
			return err
		}
	}
	return r.converge(ctx, c)
}

// matches reports whether the controller has all that is wanted.
func (r *reconciliation) matches(ctx context.Context, c *Cluster) (bool, error) {
	cluster, err := c.api().Cluster(ctx)
	if err != nil || !cluster.Enabled() {
		return false, err
	}
	g, err := c.GRPC(ctx, nvue.AppController)
	if err != nil || !g.Ready() {
		return false, err
	}
	// A controller that does not tell is configured, which finds out why.
	ctl, err := r.greet(ctx, c)
	if err != nil {
		return false, passing(ctx, err)
	}
	defer ctl.Close()
	for _, e := range append([]nmxc.Entry{topologyEntry(r.cmd.GetTopology())}, r.memory.Extras...) {
		now, found, err := ctl.Value(ctx, e.File, e.Key)
		if err != nil || !found || now != e.Value {
			return false, passing(ctx, err)
		}
	}
	return true, nil
}

// passing drops errors that are the switch's.
func passing(ctx context.Context, err error) error {
	if err != nil && interrupted(ctx, err) {
		return err
	}
	return nil
}

// greet connects to the controller. On VR NVL72 it may take its time to start
// behind an open port.
func (r *reconciliation) greet(ctx context.Context, c *Cluster) (*nmxc.Client, error) {
	if r.withServers {
		return c.Greet(ctx, c.timing.GreetStarting, nmxc.Unavailable)
	}
	return c.Controller(ctx)
}

// configurePrimary does what ConfigureManager does, and the extra entries.
func (r *reconciliation) configurePrimary(ctx context.Context, c *Cluster) error {
	if _, err := c.SetState(ctx, true); err != nil {
		return err
	}
	if _, err := c.SetGRPC(ctx, nvue.AppController, true); err != nil {
		return err
	}
	if c.sw.Insecure() {
		if _, err := c.Unbind(ctx, nvue.AppController); err != nil {
			return err
		}
	}
	if err := c.AwaitReady(ctx, nvue.AppController); err != nil {
		return err
	}
	if _, err := c.SetTopology(ctx, r.cmd.GetTopology(), r); err != nil {
		return err
	}
	if err := r.failpoint(PointWritten); err != nil {
		return err
	}
	if len(r.memory.Extras) == 0 {
		return nil
	}
	ctl, err := r.greet(ctx, c)
	if err != nil {
		return err
	}
	defer ctl.Close()
	for _, e := range r.memory.Extras {
		if _, err := apply(ctx, ctl, e, r); err != nil {
			return err
		}
		if err := r.failpoint(PointWritten); err != nil {
			return err
		}
	}
	return nil
}

// changing keeps the value in force, the first one of each entry, and that the
// controller has to be restarted for the new one.
func (r *reconciliation) changing(ctx context.Context, e nmxc.Entry, now string, found bool) error {
	return r.memory.change(ctx, r.t, func() {
		known := false
		for _, c := range r.memory.Entries {
			known = known || c.File == e.File && c.Key == e.Key
		}
		if !known {
			r.memory.Entries = append(r.memory.Entries, changedEntry{e.File, e.Key, now, found})
		}
		if e.File == nmxc.FileFabric && e.Key != nmxc.KeyTopology {
			r.memory.RestartDue = true
		}
	})
}

// softReset counts the restarts for a topology over all owners of the job.
func (r *reconciliation) softReset(ctx context.Context) (bool, error) {
	if r.memory.SoftResets >= r.w.timing.SoftResets {
		return false, nil
	}
	return true, r.memory.change(ctx, r.t, func() { r.memory.SoftResets++ })
}

// converge waits until the control plane is configured. A controller that runs and
// is not gets one restart.
func (r *reconciliation) converge(ctx context.Context, c *Cluster) error {
	spoke, err := r.awaitConfigured(ctx, c)
	if err == nil || !errors.Is(err, ErrNotConverged) || !spoke || r.memory.Restarted {
		return err
	}
	r.t.Logger().Warn("controller restarted, its control plane is not configured", "switch", r.memory.Primary, "err", err)
	if err := r.restart(ctx, c, true); err != nil {
		return err
	}
	_, err = r.awaitConfigured(ctx, c)
	return err
}

// awaitConfigured waits for the control plane; spoke says that it told a state at
// least once. A controller that is found stopped was left by an owner who died
// between its end and its start.
func (r *reconciliation) awaitConfigured(ctx context.Context, c *Cluster) (spoke bool, err error) {
	end := time.Now().Add(c.timing.Configured)
	var last error
	state, started := "", false
	for {
		app, err := c.api().App(ctx, nvue.AppController)
		switch {
		case err != nil && interrupted(ctx, err):
			return spoke, err
		case err != nil:
			last = err
		case app.Info == nvue.ControlPlaneConfigured:
			return true, nil
		default:
			last, state = nil, app.Info
			spoke = spoke || app.Info != ""
			if app.Stopped() && !started {
				started = true
				if _, err := c.api().RunAction(ctx, nvue.StartApp(nvue.AppController)); err != nil {
					return spoke, err
				}
				continue
			}
		}
		if time.Now().Add(c.timing.ConfiguredPoll).After(end) {
			return spoke, fmt.Errorf("%w: the control plane is %q and not configured after %s: %w", ErrNotConverged, state,
				c.timing.Configured, errors.Join(errors.New("last look"), last))
		}
		if err := r.t.Sleep(ctx, c.timing.ConfiguredPoll); err != nil {
			return spoke, err
		}
	}
}
