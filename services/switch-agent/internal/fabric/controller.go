// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"

	"github.com/rackbus/rackbus/services/switch-agent/internal/channel"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
	"github.com/rackbus/rackbus/services/switch-agent/internal/runbook"
)

// Controller connects to the fabric controller and greets it, once. Close it.
func (c *Cluster) Controller(ctx context.Context) (*nmxc.Client, error) {
	o, err := c.sw.Controller()
	if err != nil {
		return nil, err
	}
	return nmxc.Open(ctx, o)
}

// Greet does so again while again says that the error may pass.
func (c *Cluster) Greet(ctx context.Context, l Look, again func(error) bool) (*nmxc.Client, error) {
	for n := 1; ; n++ {
		ctl, err := c.Controller(ctx)
		if err == nil || interrupted(ctx, err) || !again(err) || n >= l.Times {
			return ctl, err
		}
		if err := runbook.Sleep(ctx, l.Pause); err != nil {
			return nil, err
		}
	}
}

// notConnected reports that no connection came up, as against a call that failed.
func notConnected(err error) bool { return errors.As(err, new(*channel.Error)) }

// journal is told of changes that a workflow has to know of after a crash.
type journal interface {
	// changing comes before an entry is changed, with the value in force.
	changing(ctx context.Context, e nmxc.Entry, now string, found bool) error
	// softReset comes before an app is restarted that does not take its topology. It
	// is false when that was done often enough.
	softReset(ctx context.Context) (bool, error)
}

// apply gives an entry its value unless it has it, and reads it back. A write that
// failed is judged by what is read then.
func apply(ctx context.Context, ctl *nmxc.Client, e nmxc.Entry, j journal) (changed bool, err error) {
	now, found, err := ctl.Value(ctx, e.File, e.Key)
	if err != nil || found && now == e.Value {
		return false, err
	}
	if err := j.changing(ctx, e, now, found); err != nil {
		return false, err
	}
	written := ctl.Set(ctx, e.File, e.Key, e.Value)
	if written != nil && interrupted(ctx, written) {
		return true, written
	}
	now, _, err = ctl.Value(ctx, e.File, e.Key)
	switch {
	case err != nil && interrupted(ctx, err):
		return true, err
	case err == nil && now == e.Value:
		return true, nil
	default:
		return true, fmt.Errorf("%w: %s %s is %q and not %q: %w", ErrNotTaken, e.File, e.Key, now, e.Value,
			errors.Join(errors.New("read back"), written, err))
	}
}

func topologyEntry(topology string) nmxc.Entry {
	return nmxc.Entry{File: nmxc.FileFabric, Key: nmxc.KeyTopology, Value: topology}
}

// SetTopology makes a topology that of the fabric. A controller that does not take
// it is restarted, as often as the journal lets it.
func (c *Cluster) SetTopology(ctx context.Context, topology string, j journal) (changed bool, err error) {
	if topology == "" || topology == nmxc.TopologyUnknown {
		return false, fmt.Errorf("%w: %q is no topology", ErrInvalid, topology)
	}
	ctl, err := c.Controller(ctx)
	if err != nil {
		return false, err
	}
	changed, err = apply(ctx, ctl, topologyEntry(topology), j)
	ctl.Close()
	for err != nil && errors.Is(err, ErrNotTaken) {
		again, jerr := j.softReset(ctx)
		if jerr != nil {
			return changed, jerr
		}
		if !again {
			return changed, err
		}
		if err = c.softReset(ctx, topology, j); err != nil {
			if interrupted(ctx, err) {
				return changed, err
			}
			// A step that fails costs the try and no more.
			err = fmt.Errorf("%w: after a soft reset: %w", ErrNotTaken, err)
		}
	}
	return changed, err
}

func (c *Cluster) softReset(ctx context.Context, topology string, j journal) error {
	if err := runbook.Sleep(ctx, c.timing.SoftResetPause); err != nil {
		return err
	}
	if err := c.RestartApp(ctx, nvue.AppController); err != nil {
		return err
	}
	if err := c.AwaitReady(ctx, nvue.AppController); err != nil {
		return err
	}
	ctl, err := c.Controller(ctx)
	if err != nil {
		return err
	}
	defer ctl.Close()
	_, err = apply(ctx, ctl, topologyEntry(topology), j)
	return err
}
