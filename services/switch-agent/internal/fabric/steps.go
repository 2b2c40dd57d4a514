// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// primary returns the steps for the switch that runs the fabric manager.
func (r *reconciliation) primary(ctx context.Context) (*Cluster, error) {
	c, err := r.fleet.get(ctx, r.memory.Primary)
	if err != nil {
		return nil, fmt.Errorf("primary switch %s: %w", r.memory.Primary, err)
	}
	return c, nil
}

// clearOthers takes the switches with servers of their own out of the fabric, one
// after the other.
func (r *reconciliation) clearOthers(ctx context.Context) error {
	for _, id := range r.memory.enabledBefore(r.fleet.but(r.memory.Primary), true) {
		err := r.fleet.on(ctx, id, func(ctx context.Context, _ string, c *Cluster) error { return c.ClearAndDisable(ctx) })
		if err != nil {
			return err
		}
	}
	return nil
}

// disableOthers switches the clusters of all others off that clearOthers has left.
func (r *reconciliation) disableOthers(ctx context.Context) error {
	others := r.fleet.but(r.memory.Primary)
	if r.withServers {
		others = r.memory.enabledBefore(others, false)
	}
	return r.fleet.each(ctx, others, func(ctx context.Context, _ string, c *Cluster) error {
		_, err := c.SetState(ctx, false)
		return err
	})
}

func (r *reconciliation) enablePrimary(ctx context.Context) error {
	c, err := r.primary(ctx)
	if err != nil {
		return err
	}
	_, err = c.SetState(ctx, true)
	return err
}

func (r *reconciliation) configureServers(ctx context.Context) error {
	c, err := r.primary(ctx)
	if err != nil {
		return err
	}
	primary, secondary, err := r.serverSets()
	if err != nil {
		return err
	}
	if _, err := c.SetServers(ctx, nvue.NodePrimary, primary); err != nil {
		return err
	}
	if len(secondary) > 0 {
		_, err = c.SetServers(ctx, nvue.NodeSecondary, secondary)
	}
	return err
}

// secure makes sure that the controller is reached in the configured way.
func (r *reconciliation) secure(ctx context.Context) error {
	c, err := r.primary(ctx)
	if err != nil {
		return err
	}
	if err := r.recordExposure(ctx, c); err != nil {
		return err
	}
	if c.sw.Insecure() {
		_, err := c.Unbind(ctx, nvue.AppController)
		return err
	}
	if _, err := c.SetState(ctx, true); err != nil {
		return err
	}
	if _, err := c.SetGRPC(ctx, nvue.AppController, true); err != nil {
		return err
	}
	if err := c.AwaitReady(ctx, nvue.AppController); err != nil {
		return err
	}
	ctl, err := c.Controller(ctx)
	if err == nil {
		ctl.Close()
		return nil
	}
	if interrupted(ctx, err) || !notConnected(err) {
		return err
	}
	return r.bind(ctx, c, err)
}

// recordExposure keeps whether the primary's gRPC port was open. What cannot be
// read is kept as unknown, and never taken for closed.
func (r *reconciliation) recordExposure(ctx context.Context, c *Cluster) error {
	if r.memory.Exposure.Recorded {
		return nil
	}
	state, err := c.manager(ctx, nvue.AppController)
	if err != nil && interrupted(ctx, err) {
		return err
	}
	return r.memory.change(ctx, r.t, func() {
		r.memory.Exposure = exposure{Recorded: true, Known: err == nil, Open: err == nil && managerOn(state)}
	})
}

// bind gives the controller the certificates that NVUE has, since nobody can
// connect to it with those it has now.
func (r *reconciliation) bind(ctx context.Context, c *Cluster, cause error) error {
	certificate, err := c.api().APICertificate(ctx)
	if err != nil {
		return err
	}
	ca, err := c.api().APIClientCA(ctx)
	switch {
	case err != nil && !errors.Is(err, nvue.ErrNotFound):
		return err
	case certificate == "" || certificate == nvue.SelfSigned || ca == "":
		return fmt.Errorf("%w: the controller cannot be connected to (%w) and NVUE has no certificates that it could use: "+
			"run ConfigureSwitchCertificate for switch %s first", ErrPrecondition, cause, r.memory.Primary)
	}
	if !r.memory.Bound {
		if err := r.t.SafePoint(ctx); err != nil {
			if errors.Is(err, agent.ErrCancelled) {
				return err
			}
			return &passedError{err}
		}
		if err := r.memory.change(ctx, r.t, func() { r.memory.Bound = true }); err != nil {
			return err
		}
	}
	if err := c.Bind(ctx, nvue.AppController, certificate, ca); err != nil {
		return err
	}
	if err := r.failpoint(PointBound); err != nil {
		return err
	}
	ctl, err := c.Greet(ctx, c.timing.Greet, notConnected)
	if err != nil {
		return err
	}
	ctl.Close()
	return nil
}

// failpoint is Task.Failpoint for steps whose other errors are restored from.
func (r *reconciliation) failpoint(name string) error {
	if err := r.t.Failpoint(name); err != nil {
		return &passedError{err}
	}
	return nil
}

// verifyServers reads once more that the node servers are as wanted.
func (r *reconciliation) verifyServers(ctx context.Context) error {
	c, err := r.primary(ctx)
	if err != nil {
		return err
	}
	primary, secondary, err := r.serverSets()
	if err != nil {
		return err
	}
	for i, wanted := range map[nvue.NodeInterface][]string{nvue.NodePrimary: primary, nvue.NodeSecondary: secondary} {
		if i == nvue.NodeSecondary && len(wanted) == 0 {
			continue
		}
		now, err := c.Servers(ctx, i)
		if err != nil {
			return err
		}
		if got := canonical(now); fmt.Sprint(got) != fmt.Sprint(wanted) {
			return fmt.Errorf("%w: the %s servers are %v and not %v any more", ErrPrecondition, i, got, wanted)
		}
	}
	return nil
}

const bridgesOK = "ok"

// checkBridges tells whether the controller is well connected. A fabric that is
// configured does not fail for it.
func (r *reconciliation) checkBridges(ctx context.Context) error {
	c, err := r.primary(ctx)
	if err == nil {
		var primary []string
		if primary, _, err = r.serverSets(); err == nil {
			err = c.CheckBridges(ctx, primary)
		}
	}
	if err != nil && interrupted(ctx, err) {
		return err
	}
	state := bridgesOK
	if err != nil {
		state = err.Error()
		r.t.Logger().Warn("fabric connections not healthy", "switch", r.memory.Primary, "err", err)
	}
	return r.memory.change(ctx, r.t, func() { r.memory.SDN = state })
}

// readBack reads the fabric and demands that it is as wanted.
func (r *reconciliation) readBack(ctx context.Context) error {
	doc, err := r.readFabric(ctx)
	r.partial = doc
	if err != nil {
		return err
	}
	if err := r.judge(&doc); err != nil {
		return err
	}
	return r.memory.change(ctx, r.t, func() { r.memory.Found = doc })
}

func (r *reconciliation) readFabric(ctx context.Context) (document, error) {
	doc := document{Extras: []documentEntry{}}
	ids := r.fleet.ids()
	doc.Switches = make([]documentSwitch, len(ids))
	at := make(map[string]int, len(ids))
	for i, id := range ids {
		doc.Switches[i].NodeID, at[id] = id, i
	}
	err := r.fleet.each(ctx, ids, func(ctx context.Context, id string, c *Cluster) error {
		s := c.Status(ctx)
		doc.Switches[at[id]] = documentSwitch{NodeID: id, Enabled: s.GetEnabled(), Manager: s.GetManagerStatus(), Error: s.GetError()}
		return context.Cause(ctx)
	})
	if err != nil {
		return doc, err
	}
	c, err := r.primary(ctx)
	if err != nil {
		return doc, err
	}
	var files []string
	for _, e := range r.memory.Extras {
		files = append(files, e.File)
	}
	config, err := c.readConfig(ctx, files...)
	if err != nil {
		return doc, err
	}
	topology, entries, err := split(config)
	doc.setConfig(topology, entries)
	return doc, err
}

func (r *reconciliation) judge(doc *document) error {
	var faults []error
	for _, s := range doc.Switches {
		switch {
		case s.Error != "":
			faults = append(faults, fmt.Errorf("switch %s cannot be read: %s", s.NodeID, s.Error))
		case s.Enabled != (s.NodeID == r.memory.Primary):
			faults = append(faults, fmt.Errorf("switch %s takes part: %t, primary switch is %s", s.NodeID, s.Enabled, r.memory.Primary))
		}
	}
	if doc.Topology != r.cmd.GetTopology() {
		faults = append(faults, fmt.Errorf("the topology is %q and not %q", doc.Topology, r.cmd.GetTopology()))
	}
	for _, e := range r.memory.Extras {
		if got, found := doc.value(e); !found || got != e.Value {
			faults = append(faults, fmt.Errorf("%s %s is %q and not %q", e.File, e.Key, got, e.Value))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotConverged, errors.Join(faults...))
}

func (d *document) value(e nmxc.Entry) (string, bool) {
	for _, got := range d.Extras {
		if got.File == e.File && got.Key == e.Key {
			return got.Value, true
		}
	}
	return "", false
}
