// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"context"
	"errors"
	"fmt"
	"time"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// resets is the journal of a configuration that nobody takes over.
type resets struct{ left int }

func (*resets) changing(context.Context, nmxc.Entry, string, bool) error { return nil }

func (r *resets) softReset(context.Context) (bool, error) {
	r.left--
	return r.left >= 0, nil
}

// ConfigureManager makes a switch manage a fabric of the given topology. Failures
// are in the reply. From the moment in which the controller's port is opened a
// failure closes it again; the reply tells whether that succeeded. What is left of
// the caller's time by Timing.Rollback belongs to that.
func (c *Cluster) ConfigureManager(ctx context.Context, topology string) *rackbusv1.FabricManagerReply {
	end, _ := ctx.Deadline()
	work, cancel := bounded(ctx, end, c.timing.Rollback)
	defer cancel()
	out := &rackbusv1.FabricManagerReply{}
	err := c.prepareManager(work, out)
	if err == nil {
		err = c.configureTopology(work, topology, out)
	}
	if err == nil {
		out.Configured = true
		return out
	}
	if out.GetMessage() == "" {
		out.Message = err.Error()
	}
	if timeIsOver(work) && ctx.Err() == nil {
		out.Message = "the request's time was over before the fabric manager was configured: " + out.GetMessage()
	}
	if out.GetGrpcEnabled() {
		if _, rerr := c.SetGRPC(ctx, nvue.AppController, false); rerr != nil {
			out.Message += fmt.Sprintf("; gRPC was not switched off again: %v", rerr)
		} else {
			out.GrpcEnabled = false
		}
	}
	return out
}

// bounded ends before ctx does, at end, and keeps time for what comes then: half of
// what there is at most.
func bounded(ctx context.Context, end time.Time, keep time.Duration) (context.Context, context.CancelFunc) {
	if end.IsZero() {
		return context.WithCancel(ctx)
	}
	left := time.Until(end)
	return context.WithTimeout(ctx, left-min(keep, left/2))
}

// deadlineSlack is how much earlier than we a peer may see a deadline pass that it
// was told.
const deadlineSlack = 100 * time.Millisecond

func timeIsOver(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ok && time.Until(end) < deadlineSlack
}

// prepareManager brings the controller to where it can be connected to.
func (c *Cluster) prepareManager(ctx context.Context, out *rackbusv1.FabricManagerReply) error {
	if _, err := c.SetState(ctx, true); err != nil {
		return fmt.Errorf("enable the cluster: %w", err)
	}
	out.StateEnabled = true
	// A port that could not be proved open may be open all the same.
	opened, err := c.SetGRPC(ctx, nvue.AppController, true)
	out.GrpcEnabled = err == nil || opened
	if err != nil {
		return fmt.Errorf("enable gRPC: %w", err)
	}
	if c.sw.Insecure() {
		if _, err := c.Unbind(ctx, nvue.AppController); err != nil {
			return fmt.Errorf("switch mTLS of the controller off: %w", err)
		}
	}
	g, err := c.GRPC(ctx, nvue.AppController)
	if err == nil && !g.Ready() {
		err = fmt.Errorf("%w: the controller's gRPC service is not ready for clients: %s", ErrPrecondition, g)
	}
	return err
}

func (c *Cluster) configureTopology(ctx context.Context, topology string, out *rackbusv1.FabricManagerReply) error {
	changed, err := c.SetTopology(ctx, topology, &resets{left: c.timing.SoftResets})
	switch {
	case err == nil && changed:
		out.Message, out.TopologyUsed = fmt.Sprintf("topology %s configured", topology), topology
	case err == nil:
		out.Message, out.TopologyUsed = fmt.Sprintf("topology %s was configured already", topology), topology
	case errors.Is(err, ErrNotTaken):
		out.TopologyUsed = topology
		out.Message = fmt.Sprintf("topology %s not configured after %d soft resets, a hard reset of the switch is advised: %v",
			topology, c.timing.SoftResets, err)
	}
	return err
}
