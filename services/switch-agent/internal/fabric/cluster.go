// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// States of the cluster.
const (
	stateEnabled  = "enabled"
	stateDisabled = "disabled"
	stateStarting = "start"
)

func onOff(on bool) string {
	if on {
		return stateEnabled
	}
	return stateDisabled
}

// Cluster is one switch's part of the fabric.
type Cluster struct {
	sw     Switch
	timing Timing
	// editing, when set, is told before the configuration is changed and when that is
	// applied and saved: who dies in between leaves what the next boot forgets.
	editing func(ctx context.Context, under bool) error
}

// NewCluster returns the steps for a switch that was initialized.
func NewCluster(sw Switch, t Timing) *Cluster { return &Cluster{sw: sw, timing: t.withDefaults()} }

func (c *Cluster) api() *nvue.Client { return c.sw.API() }

// change applies and saves edits.
func (c *Cluster) change(ctx context.Context, edits ...nvue.Edit) error {
	return c.edit(ctx, func() (nvue.Outcome, error) { return c.api().Change(ctx, edits...) })
}

func (c *Cluster) edit(ctx context.Context, do func() (nvue.Outcome, error)) error {
	if c.editing == nil {
		_, err := do()
		return err
	}
	if err := c.editing(ctx, true); err != nil {
		return err
	}
	out, err := do()
	if err == nil && !out.Changed {
		// Somebody applied the same in between: an owner of this job who has died.
		err = c.api().SaveRevision(ctx, nvue.Applied)
	}
	if err != nil {
		return err
	}
	return c.editing(ctx, false)
}

// takesPart reports whether a switch is in the fabric, or about to be.
func takesPart(c nvue.Cluster) bool { return c.Enabled() || c.State == stateStarting }

// SetState switches the cluster on or off, and waits until it shows it. A cluster
// that is as wanted is left alone.
func (c *Cluster) SetState(ctx context.Context, on bool) (changed bool, err error) {
	now, err := c.api().Cluster(ctx)
	switch {
	case err != nil:
		return false, err
	case now.State == "":
		return false, fmt.Errorf("%w: the switch tells no state of its cluster", ErrUnreadable)
	case now.State == onOff(on):
		return false, nil
	}
	if err := c.change(ctx, nvue.SetClusterState(on)); err != nil {
		return true, err
	}
	return true, c.awaitState(ctx, on)
}

func (c *Cluster) awaitState(ctx context.Context, on bool) error {
	state := ""
	done, err := c.timing.Converge.until(ctx, func(ctx context.Context) (bool, error) {
		now, err := c.api().Cluster(ctx)
		state = now.State
		return state == onOff(on), err
	})
	switch {
	case done:
		return nil
	case err != nil:
		return fmt.Errorf("wait for the cluster to be %s: %w", onOff(on), err)
	default:
		return fmt.Errorf("%w: the cluster is %q and not %s", ErrNotConverged, state, onOff(on))
	}
}

// RestartApp stops an app and starts it.
func (c *Cluster) RestartApp(ctx context.Context, app string) error {
	if _, err := c.api().RunAction(ctx, nvue.StopApp(app)); err != nil {
		return err
	}
	_, err := c.api().RunAction(ctx, nvue.StartApp(app))
	return err
}

// ClearAndDisable takes a switch out of the fabric, servers first: NVOS refuses to
// switch a cluster off while there are any. It ends when the controller has
// stopped too.
func (c *Cluster) ClearAndDisable(ctx context.Context) error {
	for _, i := range []nvue.NodeInterface{nvue.NodePrimary, nvue.NodeSecondary} {
		if _, err := c.SetServers(ctx, i, nil); err != nil {
			return fmt.Errorf("clear the %s servers: %w", i, err)
		}
	}
	if _, err := c.SetState(ctx, false); err != nil {
		return err
	}
	shown := ""
	done, err := c.timing.Converge.until(ctx, func(ctx context.Context) (bool, error) {
		now, err := c.api().Cluster(ctx)
		if err != nil {
			return false, err
		}
		app, err := c.api().App(ctx, nvue.AppController)
		gone := errors.Is(err, nvue.ErrNotFound)
		if gone {
			err = nil
		}
		shown = fmt.Sprintf("cluster %q, controller %q %s", now.State, app.Status, app.Info)
		return now.State == stateDisabled && (gone || app.Stopped()), err
	})
	switch {
	case done:
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("%w: %w: %s", ErrPrecondition, ErrNotConverged, shown)
	}
}
