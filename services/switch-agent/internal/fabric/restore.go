// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// restore brings the fabric back to what it was, as far as this job changed it,
// and returns why the job failed. What could not be restored is told with it. All
// of it may be repeated: who takes over begins anew and finds what is done.
func (r *reconciliation) restore(ctx context.Context) error {
	f := r.memory.Failure
	r.t.Logger().Warn("prior state of the fabric to be restored", "op", f.Stage, "err", f.Message)
	r.t.Progress(0, textRestoring)
	var left []string
	for _, part := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"static configuration", r.restoreEntries},
		{"node IPs", r.restoreServers},
		{"gRPC of the primary switch", r.restoreExposure},
		{"switches that took no part", func(ctx context.Context) error { return r.restoreStates(ctx, false) }},
		{"switches that took part", func(ctx context.Context) error { return r.restoreStates(ctx, true) }},
	} {
		err := part.do(ctx)
		if err != nil && interrupted(ctx, err) {
			return unwrapped(err)
		}
		if err != nil {
			left = append(left, part.what+": "+err.Error())
		}
		if err := r.t.Failpoint(PointRestored); err != nil {
			return err
		}
	}
	if r.memory.Bound {
		left = append(left, "the certificates of the controller on "+r.memory.Primary+" stay those of NVUE")
	}
	if len(left) == 0 {
		return f.error("the prior state was restored", nil)
	}
	return f.error("not restored: "+strings.Join(left, "; "), nil)
}

// restoreServers gives switches back the node servers that they had, for which
// their clusters have to be on.
func (r *reconciliation) restoreServers(ctx context.Context) error {
	var ids []string
	for _, id := range r.fleet.ids() {
		if r.memory.Before[id].Servers != nil {
			ids = append(ids, id)
		}
	}
	return r.fleet.each(ctx, ids, func(ctx context.Context, id string, c *Cluster) error {
		if done, err := r.untouched(ctx, id, c); done || err != nil {
			return err
		}
		if _, err := c.SetState(ctx, true); err != nil {
			return err
		}
		for _, i := range []nvue.NodeInterface{nvue.NodePrimary, nvue.NodeSecondary} {
			old, kept := r.memory.Before[id].Servers[string(i)]
			if !kept {
				continue
			}
			if _, err := c.SetServers(ctx, i, old); err != nil {
				return err
			}
		}
		return nil
	})
}

// untouched reports a switch that is as it was, servers and state: it is not
// switched on only to be switched off again.
func (r *reconciliation) untouched(ctx context.Context, id string, c *Cluster) (bool, error) {
	cluster, err := c.api().Cluster(ctx)
	if err != nil || takesPart(cluster) != r.memory.Before[id].Enabled {
		return false, err
	}
	for i, old := range r.memory.Before[id].Servers {
		now, err := c.Servers(ctx, nvue.NodeInterface(i))
		if err != nil || fmt.Sprint(canonical(now)) != fmt.Sprint(canonical(old)) {
			return false, err
		}
	}
	return true, nil
}

// restoreExposure opens or closes the primary's gRPC port again.
func (r *reconciliation) restoreExposure(ctx context.Context) error {
	e := r.memory.Exposure
	switch {
	case !e.Recorded:
		return nil
	case !e.Known:
		return errors.New("whether it was on could not be read before, it is left as it is")
	}
	c, err := r.primary(ctx)
	if err != nil {
		return err
	}
	state, err := c.manager(ctx, nvue.AppController)
	if err == nil && managerOn(state) == e.Open {
		return nil
	}
	if err != nil && interrupted(ctx, err) {
		return err
	}
	_, err = c.SetGRPC(ctx, nvue.AppController, e.Open)
	return err
}

// restoreStates switches the clusters off, or on, that were so before. Those that
// were off come first: two switches must not manage one fabric.
func (r *reconciliation) restoreStates(ctx context.Context, enabled bool) error {
	ids := r.memory.enabledBefore(r.fleet.ids(), enabled)
	return r.fleet.each(ctx, ids, func(ctx context.Context, _ string, c *Cluster) error {
		now, err := c.api().Cluster(ctx)
		if err == nil && takesPart(now) == enabled {
			return nil
		}
		if err != nil && interrupted(ctx, err) {
			return err
		}
		_, err = c.SetState(ctx, enabled)
		return err
	})
}

// restoreEntries writes the former values of the static configuration. A controller
// cannot be made to forget an entry or a topology that it did not have.
func (r *reconciliation) restoreEntries(ctx context.Context) error {
	if len(r.memory.Entries) == 0 && r.memory.Restart == nil {
		return nil
	}
	c, err := r.primary(ctx)
	if err != nil {
		return err
	}
	if r.memory.Restart != nil {
		// Whoever was in it left the controller stopped, perhaps.
		if err := r.restart(ctx, c, false); err != nil {
			return err
		}
		if err := c.AwaitReady(ctx, nvue.AppController); err != nil {
			return err
		}
	}
	if len(r.memory.Entries) == 0 {
		return nil
	}
	ctl, err := c.Controller(ctx)
	if err != nil {
		return err
	}
	defer ctl.Close()
	var faults []error
	for _, old := range r.memory.Entries {
		if !old.Found || old.Old == "" || old.Key == nmxc.KeyTopology && old.Old == nmxc.TopologyUnknown {
			faults = append(faults, fmt.Errorf("%s %s had no value before and keeps the new one", old.File, old.Key))
			continue
		}
		_, err := apply(ctx, ctl, nmxc.Entry{File: old.File, Key: old.Key, Value: old.Old}, r)
		if err != nil && interrupted(ctx, err) {
			return err
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	if r.memory.RestartDue {
		err := r.restart(ctx, c, false)
		if err != nil && interrupted(ctx, err) {
			return err
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}
