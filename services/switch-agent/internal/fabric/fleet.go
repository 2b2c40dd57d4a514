// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// fleet are the switches of a job, opened when they are first needed: after a
// crash some may not answer, and what has to be done on the others goes on.
type fleet struct {
	open     func(*rackbusv1.NodeTarget) (Switch, error)
	timing   Timing
	switches []*rackbusv1.FabricSwitch

	// editing is told of changes of a switch's configuration, see Cluster; unsaved
	// tells which an earlier owner has not ended.
	editing func(ctx context.Context, id string, under bool) error
	unsaved func(id string) bool

	mu     sync.Mutex
	opened map[string]Switch
}

func newFleet(switches []*rackbusv1.FabricSwitch, t Timing, open func(*rackbusv1.NodeTarget) (Switch, error)) *fleet {
	return &fleet{open: open, timing: t, switches: switches, opened: make(map[string]Switch)}
}

func (f *fleet) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sw := range f.opened {
		sw.Close()
	}
}

// ids are the switches' node ids, in the order of the command.
func (f *fleet) ids() []string {
	out := make([]string, len(f.switches))
	for i, s := range f.switches {
		out[i] = s.GetTarget().GetNodeId()
	}
	return out
}

// but are all ids other than one.
func (f *fleet) but(id string) []string {
	var out []string
	for _, other := range f.ids() {
		if other != id {
			out = append(out, other)
		}
	}
	return out
}

func (f *fleet) find(id string) *rackbusv1.FabricSwitch {
	for _, s := range f.switches {
		if s.GetTarget().GetNodeId() == id {
			return s
		}
	}
	return nil
}

// mixed reports whether some of the switches have node servers, and whether all.
func (f *fleet) haveServers() (some, all bool) {
	all = true
	for _, s := range f.switches {
		typ, ok := node.ByID(s.GetTarget().GetNodeType())
		with := ok && typ.Rack == node.RackVRNVL72
		some, all = some || with, all && with
	}
	return some, all
}

// get returns the steps for a switch that answers.
func (f *fleet) get(ctx context.Context, id string) (*Cluster, error) {
	f.mu.Lock()
	sw := f.opened[id]
	f.mu.Unlock()
	if sw == nil {
		var err error
		if sw, err = f.open(f.find(id).GetTarget()); err != nil {
			return nil, err
		}
		f.mu.Lock()
		if other := f.opened[id]; other != nil {
			f.mu.Unlock()
			sw.Close()
			sw = other
		} else {
			f.opened[id] = sw
			f.mu.Unlock()
		}
	}
	if err := sw.Initialize(ctx); err != nil {
		return nil, err
	}
	c := NewCluster(sw, f.timing)
	c.editing = func(ctx context.Context, under bool) error { return f.editing(ctx, id, under) }
	if f.unsaved(id) {
		if err := c.api().SaveRevision(ctx, nvue.Applied); err != nil {
			return nil, err
		}
		return c, c.editing(ctx, false)
	}
	return c, nil
}

// each does something on several switches at the same time and waits for all. The
// error names the switches it is of.
func (f *fleet) each(ctx context.Context, ids []string, do func(context.Context, string, *Cluster) error) error {
	faults := make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { faults[i] = f.on(ctx, id, do) })
	}
	wg.Wait()
	return errors.Join(faults...)
}

// on does something on one switch.
func (f *fleet) on(ctx context.Context, id string, do func(context.Context, string, *Cluster) error) error {
	c, err := f.get(ctx, id)
	if err == nil {
		err = do(ctx, id, c)
	}
	if err != nil {
		return fmt.Errorf("switch %s: %w", id, err)
	}
	return nil
}
