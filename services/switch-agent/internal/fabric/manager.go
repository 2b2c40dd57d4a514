// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
)

// GRPC is whether the service of an app can be used from outside.
type GRPC struct {
	// Manager is the state of the app's manager.
	Manager string
	// Err says why the manager could not be read. Nothing is known of its state then.
	Err error
	// Reachable says that the port is served.
	Reachable bool
}

// Enabled reports whether the port is known to be switched on.
func (g GRPC) Enabled() bool { return g.Err == nil && managerOn(g.Manager) }

// Ready reports whether clients can come.
func (g GRPC) Ready() bool { return g.Enabled() && g.Reachable }

func (g GRPC) String() string {
	if g.Err != nil {
		return fmt.Sprintf("manager unreadable (%v), port reachable: %t", g.Err, g.Reachable)
	}
	return fmt.Sprintf("manager %q, port reachable: %t", g.Manager, g.Reachable)
}

func managerOn(state string) bool {
	switch state {
	case stateEnabled, stateStarting, "active":
		return true
	default:
		return false
	}
}

// GRPC looks at the service of an app. The error is that of a caller who gave up.
func (c *Cluster) GRPC(ctx context.Context, app string) (GRPC, error) {
	var g GRPC
	g.Manager, g.Err = c.manager(ctx, app)
	if g.Err != nil && interrupted(ctx, g.Err) {
		return g, g.Err
	}
	var err error
	g.Reachable, err = channel.Answers(ctx, channel.Options{Address: c.sw.AppAddress(app), Limit: c.timing.Probe})
	return g, err
}

// manager reads the state of an app's manager. An app that is not installed has
// its manager off; anything else that cannot be read is unknown.
func (c *Cluster) manager(ctx context.Context, app string) (string, error) {
	state, err := c.api().ManagerState(ctx, app)
	if errors.Is(err, nvue.ErrNotFound) {
		if _, aerr := c.api().App(ctx, app); errors.Is(aerr, nvue.ErrNotFound) {
			return stateDisabled, nil
		}
	}
	if err == nil && state == "" {
		err = fmt.Errorf("%w: the manager of %s tells no state", ErrUnreadable, app)
	}
	return state, err
}

// SetGRPC opens or closes the port of an app, and waits until the manager shows
// it. An app that is stopped is started first. A port that is as wanted is left
// alone; one of which that cannot be read is never taken for closed.
func (c *Cluster) SetGRPC(ctx context.Context, app string, on bool) (changed bool, err error) {
	g, err := c.GRPC(ctx, app)
	switch {
	case err != nil:
		return false, err
	case on && g.Ready():
		return false, nil
	case !on && g.Err != nil:
		return false, fmt.Errorf("%w: whether gRPC of %s is on: %w", ErrUnreadable, app, g.Err)
	case !on && !g.Enabled():
		return false, nil
	}
	if on {
		served, started, err := c.awaitRunning(ctx, app)
		if err != nil || served {
			return started, err
		}
	}
	// Whatever became of an action whose end was not seen, the state tells.
	_, err = c.api().RunAction(ctx, nvue.SetManagerState(app, on))
	if err != nil && (interrupted(ctx, err) || !errors.Is(err, nvue.ErrActionGone) && !nvue.OutcomeUnknown(err)) {
		return true, err
	}
	return true, c.awaitManager(ctx, app, on)
}

func (c *Cluster) awaitManager(ctx context.Context, app string, on bool) error {
	state := ""
	done, err := c.timing.Converge.until(ctx, func(ctx context.Context) (bool, error) {
		now, err := c.api().App(ctx, app)
		state = now.ManagerState
		return err == nil && state != "" && managerOn(state) == on, err
	})
	switch {
	case done:
		return nil
	case err != nil:
		return fmt.Errorf("wait for gRPC of %s to be %s: %w", app, onOff(on), err)
	default:
		return fmt.Errorf("%w: the manager of %s is %q and not %s", ErrNotConverged, app, state, onOff(on))
	}
}

// awaitRunning waits until an app can be told to open its port, and starts it once
// when it is stopped. served says that the port is on by then.
func (c *Cluster) awaitRunning(ctx context.Context, app string) (served, started bool, err error) {
	for n := range c.timing.Converge.Times {
		if n > 0 {
			if err := runbook.Sleep(ctx, c.timing.Converge.Pause); err != nil {
				return false, started, err
			}
		}
		cluster, err := c.api().Cluster(ctx)
		switch {
		case err != nil && interrupted(ctx, err):
			return false, started, err
		case err != nil:
			return false, started, nil // the manager itself will tell
		case !cluster.Enabled():
			continue
		}
		now, err := c.api().App(ctx, app)
		if err != nil && interrupted(ctx, err) {
			return false, started, err
		}
		switch {
		case err == nil && cluster.Connection == "up" && appServes(now):
			return managerOn(now.ManagerState), started, nil
		case err == nil && (now.Status == "stopped" || now.ControlPlaneIsStopped()) && !started:
			started = true
			if _, err := c.api().RunAction(ctx, nvue.StartApp(app)); err != nil {
				return false, started, err
			}
		case cluster.Connection != "" && cluster.Connection != "up":
		case err == nil && (now.Status != "" || now.Info != ""):
		default:
			return false, started, nil
		}
	}
	if started {
		return false, started, fmt.Errorf("%w: %s was started and does not run", ErrNotConverged, app)
	}
	return false, false, nil
}

// appServes reports whether an app's control plane is up, configured or not.
func appServes(a nvue.App) bool {
	return a.Status == "ok" || a.Info == nvue.ControlPlaneConfigured || a.Info == nvue.ControlPlaneUnconfigured
}

// AwaitReady waits until an app runs and its port can be used.
func (c *Cluster) AwaitReady(ctx context.Context, app string) error {
	shown := ""
	done, err := c.timing.Ready.until(ctx, func(ctx context.Context) (bool, error) {
		now, err := c.api().App(ctx, app)
		if err != nil {
			return false, err
		}
		g, err := c.GRPC(ctx, app)
		shown = fmt.Sprintf("status %q %s, %s", now.Status, now.Info, g)
		return appServes(now) && g.Ready(), err
	})
	switch {
	case done:
		return nil
	case err != nil:
		return fmt.Errorf("wait for %s: %w", app, err)
	default:
		return fmt.Errorf("%w: %s is not ready: %s", ErrNotConverged, app, shown)
	}
}
