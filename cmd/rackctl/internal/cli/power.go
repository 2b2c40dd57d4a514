// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// powerParallel is how many power states are read at once.
const powerParallel = 8

// powerVerb is one change of power.
type powerVerb struct {
	use, short string
	op         rackmanager.PowerOperation
	// cuts says that work on the node is lost.
	cuts bool
}

var powerVerbs = []powerVerb{
	{"on", "Power nodes on", rackmanager.PowerOperation_POWER_OPERATION_ON, false},
	{"off", "Power nodes off, as their family does it", rackmanager.PowerOperation_POWER_OPERATION_OFF, true},
	{"cycle", "Power-cycle nodes", rackmanager.PowerOperation_POWER_OPERATION_RESET, true},
	{"shutdown", "Ask the operating systems to shut down (GracefulShutdown)", rackmanager.PowerOperation_POWER_OPERATION_GRACEFUL_SHUTDOWN, true},
	{"restart", "Ask the operating systems to restart (GracefulRestart)", rackmanager.PowerOperation_POWER_OPERATION_GRACEFUL_RESTART, true},
	{"force-off", "Cut the power (ForceOff)", rackmanager.PowerOperation_POWER_OPERATION_FORCE_OFF, true},
	{"force-on", "Power nodes on (ForceOn)", rackmanager.PowerOperation_POWER_OPERATION_FORCE_ON, false},
	{"force-restart", "Restart nodes without asking (ForceRestart)", rackmanager.PowerOperation_POWER_OPERATION_FORCE_RESTART, true},
}

func newPower(p *program) *cobra.Command {
	cmds := []*cobra.Command{newPowerGet(p)}
	for _, v := range powerVerbs {
		cmds = append(cmds, newPowerSet(p, v))
	}
	return group("power", "Read and change the power of registered nodes", cmds...)
}

// registeredFlags choose registered nodes.
type registeredFlags struct {
	rack, nodeType string
	all            bool
}

func (f *registeredFlags) add(p *program, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.rack, "rack", "", "`RACK` of the nodes")
	addType(cmd, &f.nodeType, "with --all: only nodes of `NODE_TYPE`")
	flags.BoolVar(&f.all, "all", false, "all nodes of the rack")
	register(cmd, "rack", p.completeRacks)
	requires(cmd, func(args []string) error {
		switch {
		case f.all && (f.rack == "" || len(args) > 0):
			return usagef("--all takes every node of --rack RACK, and no names")
		case !f.all && len(args) == 0:
			return usagef("no nodes: name them, or give --rack RACK --all")
		case !f.all && f.nodeType != "":
			return usagef("--type chooses among the nodes of --all, not among names")
		}
		return nil
	})
	cmd.ValidArgsFunction = p.completeNodes
}

// refs are the chosen nodes.
func (f *registeredFlags) refs(ctx context.Context, s *server, args []string) ([]node.Ref, error) {
	if !f.all {
		return references(f.rack, args)
	}
	resp, err := s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
	if err != nil {
		return nil, err
	}
	var out []node.Ref
	for _, n := range sortedNodes(resp.GetNodes()) {
		if n.GetRackId() == f.rack && (f.nodeType == "" || typeWord(n.GetType(), n.GetNodeDescriptor()) == strings.ToLower(f.nodeType)) {
			out = append(out, node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()})
		}
	}
	if len(out) == 0 {
		return nil, notFoundf("no such node is registered in rack %s", f.rack)
	}
	return out, nil
}

func newPowerGet(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "get [RACK/]NODE...", Aliases: []string{"status"}, Short: "Read the power states",
		Long:    "Read the power states of registered nodes from the devices.\n\n" + exitHelp,
		Example: "  rackctl power get lab/tray-01 lab/tray-02\n  rackctl power get --rack lab --all",
	}
	return p.asksRegistered(cmd, func(ctx context.Context, r *request, refs []node.Ref) error { return r.showPower(ctx, refs) })
}

// showPower reads and shows the power of nodes.
func (r *request) showPower(ctx context.Context, refs []node.Ref) error {
	outcomes, err := r.s.powerStates(ctx, refs)
	if err != nil {
		return err
	}
	t := &table{columns: columns("RACK", "NODE", "POWER", "WHY")}
	var failed []node.Ref
	for _, o := range outcomes {
		look := dim
		switch {
		case !o.OK:
			failed, look, o.State = append(failed, o.ref()), bad, "not read"
		case o.State == "ON":
			look = good
		case o.State != "OFF":
			look = odd
		}
		t.add(o.Rack, o.Node, field{o.State, look}, o.Reason)
	}
	if err := r.show(outcomes, t); err != nil {
		return err
	}
	if len(failed) > 0 {
		return r.s.failedNodes(ctx, failed, fmt.Sprintf("%d of %d nodes could not be read", len(failed), len(outcomes)))
	}
	return nil
}

// maxNamed is how many nodes a question names.
const maxNamed = 4

// nodesInWords names nodes in a question, or tells how many there are.
func nodesInWords(refs []node.Ref) string {
	if len(refs) > maxNamed {
		return fmt.Sprintf("%d nodes", len(refs))
	}
	names := make([]string, len(refs))
	for i, ref := range refs {
		names[i] = cell(place(ref.RackID, ref.NodeID))
	}
	return strings.Join(names, ", ")
}

// powerStates reads several nodes at once.
func (s *server) powerStates(ctx context.Context, refs []node.Ref) ([]nodeOutcome, error) {
	outcomes, errs := make([]nodeOutcome, len(refs)), make([]error, len(refs))
	turns := make(chan struct{}, powerParallel)
	var wg sync.WaitGroup
	for i, ref := range refs {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			ctx, reason := withReason(ctx)
			resp, err := s.racks.GetPowerState(ctx, &rackmanager.GetPowerStateRequest{RackId: ref.RackID, NodeId: ref.NodeID})
			errs[i] = err
			outcomes[i] = nodeOutcome{
				Rack: ref.RackID, Node: ref.NodeID, OK: succeeded(resp.GetStatus()), State: resp.GetPstate(), Reason: *reason,
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

func newPowerSet(p *program, v powerVerb) *cobra.Command {
	cmd := &cobra.Command{
		Use: v.use + " [RACK/]NODE...", Short: v.short,
		Long: v.short + `. The command returns when the devices have accepted the
change; a rack takes one change after the other. A node that a job works on is
refused, unless --on-busy force is given by somebody with the role admin. --dry-run
shows the power states as they are and changes nothing.

` + exitHelp,
		Example: fmt.Sprintf("  rackctl power %s lab/tray-01\n  rackctl power %s --rack lab tray-01 tray-02", v.use, v.use),
	}
	dry := cmd.Flags().Bool("dry-run", false, "show the power states, change nothing")
	jobs := &jobFlags{}
	cmd.Flags().StringVar(&jobs.onBusy, "on-busy", "", "`WHAT` to do where a job works on a node: refuse (default) or force")
	oneOf(cmd, "on-busy", "refuse", "force")
	yes := addYes(cmd)
	return p.asksRegistered(cmd, func(ctx context.Context, r *request, refs []node.Ref) error {
		if *dry {
			return r.showPower(ctx, refs)
		}
		if v.cuts && len(refs) > 1 {
			if err := p.confirm(*yes, "power %s %s", v.use, nodesInWords(refs)); err != nil {
				return err
			}
		}
		ctx = jobs.context(ctx)
		return r.each(ctx, "accepted", refs, func(i int) (string, error) {
			ctx, reason := withReason(ctx)
			resp, err := r.s.racks.SetPowerState(ctx, &rackmanager.SetPowerStateRequest{RackId: refs[i].RackID, NodeId: refs[i].NodeID, Operation: v.op})
			if err != nil || succeeded(resp.GetStatus()) {
				return "", err
			}
			return cmp.Or(*reason, "no reason was given"), nil
		})
	})
}
