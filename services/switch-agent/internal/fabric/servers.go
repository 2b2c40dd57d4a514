// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// canonical gives addresses one spelling and one order, each once.
func canonical(addresses []string) []string {
	out := make([]string, 0, len(addresses))
	for _, a := range addresses {
		if ip, err := netip.ParseAddr(a); err == nil {
			a = ip.Unmap().String()
		}
		out = append(out, a)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Servers reads the servers of an interface that are in force. A switch that does
// not know the collection has none.
func (c *Cluster) Servers(ctx context.Context, i nvue.NodeInterface) ([]string, error) {
	return c.servers(ctx, i, nvue.Applied)
}

func (c *Cluster) servers(ctx context.Context, i nvue.NodeInterface, rev nvue.Revision) ([]string, error) {
	got, err := c.api().NodeServers(ctx, i, rev)
	if errors.Is(err, nvue.ErrNotFound) {
		return nil, nil
	}
	return got, err
}

// SetServers makes a set of addresses the servers of an interface. Addresses are
// only added where that is enough; else the set is replaced.
func (c *Cluster) SetServers(ctx context.Context, i nvue.NodeInterface, wanted []string) (changed bool, err error) {
	wanted = canonical(wanted)
	now, err := c.Servers(ctx, i)
	if err != nil || slices.Equal(canonical(now), wanted) {
		return false, err
	}
	rev, err := c.api().CreateRevision(ctx)
	if err != nil {
		return false, err
	}
	// What others have applied in between is in the new revision.
	now, err = c.servers(ctx, i, rev)
	if err != nil || slices.Equal(canonical(now), wanted) {
		return false, errors.Join(err, c.api().DiscardRevision(ctx, rev))
	}
	if err := c.api().StageRevision(ctx, rev, serverEdits(i, canonical(now), wanted)...); err != nil {
		return false, err
	}
	if err := c.edit(ctx, func() (nvue.Outcome, error) { return c.api().FinishRevision(ctx, rev) }); err != nil {
		return true, err
	}
	now, err = c.Servers(ctx, i)
	if err == nil && !slices.Equal(canonical(now), wanted) {
		err = fmt.Errorf("%w: %w: %s servers are %v and not %v", ErrPrecondition, ErrNotConverged, i, now, wanted)
	}
	return true, err
}

func serverEdits(i nvue.NodeInterface, now, wanted []string) []nvue.Edit {
	var more []string
	for _, a := range wanted {
		if !slices.Contains(now, a) {
			more = append(more, a)
		}
	}
	if len(more) == len(wanted)-len(now) {
		return []nvue.Edit{nvue.AddNodeServers(i, more...)} // all that are there stay
	}
	edits := []nvue.Edit{nvue.ClearNodeServers(i)}
	if len(wanted) > 0 {
		edits = append(edits, nvue.AddNodeServers(i, wanted...))
	}
	return edits
}
