// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// snapshot reads how every switch is before anything is changed.
func (r *reconciliation) snapshot(ctx context.Context) error {
	var mu sync.Mutex
	found := make(map[string]before)
	err := r.fleet.each(ctx, r.fleet.ids(), func(ctx context.Context, id string, c *Cluster) error {
		cluster, err := c.api().Cluster(ctx)
		if err != nil {
			return err
		}
		app, err := c.api().App(ctx, nvue.AppController)
		if err != nil && !errors.Is(err, nvue.ErrNotFound) {
			return err
		}
		build := "unknown"
		if image, err := c.api().Image(ctx); err == nil {
			build = image.CurrentBuild
		}
		r.t.Logger().Info("fabric switch found", "switch", id, "cluster", cluster.State, "controller", app.Status, "nvos", build)
		mu.Lock()
		defer mu.Unlock()
		found[id] = before{Enabled: takesPart(cluster)}
		return nil
	})
	if err != nil {
		return err
	}
	return r.memory.change(ctx, r.t, func() { r.memory.Before = found })
}

// selectPrimary finds the switch that is to run the fabric manager, and what is
// wanted of it.
func (r *reconciliation) selectPrimary(ctx context.Context) error {
	primary, err := r.choosePrimary(ctx)
	if err != nil {
		return err
	}
	extras, err := mergeExtras(r.cmd.GetExtras(), r.fleet.find(primary).GetFmConfig())
	if err != nil {
		return err
	}
	return r.memory.change(ctx, r.t, func() { r.memory.Primary, r.memory.Extras = primary, extras })
}

// choosePrimary takes the one that was named, or the one lowest in the rack.
func (r *reconciliation) choosePrimary(ctx context.Context) (string, error) {
	ids := r.fleet.ids()
	named := r.cmd.GetPrimaryNodeId()
	switch {
	case named != "" && r.fleet.find(named) == nil:
		return "", fmt.Errorf("%w: the primary switch %s is not among the switches", ErrInvalid, named)
	case named != "":
		return named, nil
	case len(ids) == 0:
		return "", fmt.Errorf("%w: no switches", ErrInvalid)
	case len(ids) == 1:
		return ids[0], nil
	}
	var mu sync.Mutex
	trays := make(map[string]uint32)
	err := r.fleet.each(ctx, ids, func(ctx context.Context, id string, c *Cluster) error {
		where, err := c.api().ChassisLocation(ctx)
		if err != nil {
			return err
		}
		tray, ok := where.Tray()
		if !ok {
			return fmt.Errorf("%w: the switch tells no tray index (%q)", ErrPrecondition, where.TrayIndex)
		}
		mu.Lock()
		defer mu.Unlock()
		trays[id] = tray
		return nil
	})
	if err != nil {
		return "", err
	}
	return slices.MinFunc(ids, func(a, b string) int {
		if trays[a] != trays[b] {
			return int(int64(trays[a]) - int64(trays[b]))
		}
		return strings.Compare(a, b)
	}), nil
}

// mergeExtras puts what the primary's own descriptor wants behind what the request
// does, and checks them together.
func mergeExtras(requested []*rackbusv1.FabricEntry, own map[string]string) ([]nmxc.Entry, error) {
	var out []nmxc.Entry
	for _, e := range requested {
		out = append(out, nmxc.Entry{File: strings.TrimSpace(e.GetFile()), Key: strings.TrimSpace(e.GetKey()), Value: strings.TrimSpace(e.GetValue())})
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		out = append(out, nmxc.Entry{File: nmxc.FileFabric, Key: strings.TrimSpace(key), Value: strings.TrimSpace(own[key])})
	}
	seen := make(map[[2]string]bool)
	for _, e := range out {
		at := [2]string{e.File, e.Key}
		switch {
		case e.File == "" || e.Key == "":
			return nil, fmt.Errorf("%w: a static configuration entry has no file or no key", ErrInvalid)
		case e.File == nmxc.FileFabric && e.Key == nmxc.KeyTopology:
			return nil, fmt.Errorf("%w: %s %s is the topology and cannot be an extra entry", ErrInvalid, e.File, e.Key)
		case seen[at]:
			return nil, fmt.Errorf("%w: %s %s is named twice", ErrInvalid, e.File, e.Key)
		}
		seen[at] = true
	}
	return out, nil
}

// serverSets are the addresses that the primary has to know: those of the switches,
// and those of their second interfaces, which may be none.
func (r *reconciliation) serverSets() (primary, secondary []string, err error) {
	for _, s := range r.fleet.switches {
		primary = append(primary, s.GetTarget().GetHost().GetAddress())
		if a := s.GetSecondaryAddress(); a != "" {
			secondary = append(secondary, a)
		}
	}
	one, two := canonical(primary), canonical(secondary)
	if len(two) != len(secondary) {
		return nil, nil, fmt.Errorf("%w: two switches have the same secondary address", ErrInvalid)
	}
	for _, a := range two {
		if slices.Contains(one, a) {
			return nil, nil, fmt.Errorf("%w: the secondary address %s is a primary one too", ErrInvalid, a)
		}
	}
	return one, two, nil
}

// planServers checks the wanted node servers and keeps those that will be changed.
func (r *reconciliation) planServers(ctx context.Context) error {
	_, secondary, err := r.serverSets()
	if err != nil {
		return err
	}
	touched := append([]string{r.memory.Primary}, r.memory.enabledBefore(r.fleet.but(r.memory.Primary), true)...)
	var mu sync.Mutex
	found := make(map[string]map[string][]string)
	err = r.fleet.each(ctx, touched, func(ctx context.Context, id string, c *Cluster) error {
		sets := make(map[string][]string)
		for _, i := range []nvue.NodeInterface{nvue.NodePrimary, nvue.NodeSecondary} {
			if id == r.memory.Primary && i == nvue.NodeSecondary && len(secondary) == 0 {
				continue
			}
			now, err := c.Servers(ctx, i)
			if err != nil {
				return err
			}
			sets[string(i)] = append([]string{}, now...)
		}
		mu.Lock()
		defer mu.Unlock()
		found[id] = sets
		return nil
	})
	if err != nil {
		return err
	}
	return r.memory.change(ctx, r.t, func() {
		for id, sets := range found {
			r.memory.Before[id] = before{Enabled: r.memory.Before[id].Enabled, Servers: sets}
		}
	})
}
