// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func newFirmwarePlan(p *program) *cobra.Command {
	cmd := group("plan", "Freeze what a firmware object means for nodes, and apply that", newPlanCheck(p), newPlanGet(p), newPlanApply(p))
	cmd.Aliases = []string{"plans"}
	return cmd
}

func planTable(plan *rackbusv1.FirmwarePlan) *table {
	t := &table{columns: columns("NODE", "TYPE", "COMPONENT", "VERSION", "FILE", "+TARGET", "WHY NOT")}
	for _, n := range plan.GetNodes() {
		where := place(n.GetRackId(), n.GetNodeId())
		if n.GetRefusal() != "" {
			t.add(where, n.GetNodeType(), "", "", "", "", field{n.GetRefusal(), bad})
		}
		for _, target := range n.GetTargets() {
			t.add(where, n.GetNodeType(), target.GetKey(), target.GetVersion(), target.GetPath(), target.GetComponent(), "")
		}
	}
	t.notes = []string{fmt.Sprintf("Plan %s of %s, made %s", cell(plan.GetSnapshotId()), cell(plan.GetObjectId()), at(plan.GetCreatedAt()))}
	return t
}

func newPlanCheck(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Aliases: []string{"make"}, Short: "Make a plan",
		Long: "Resolve a firmware object for nodes and keep the outcome. No device is read.\n\n" + objectHelp + nodesHelp + exitHelp,
	}
	object := addObjectFlags(cmd, p)
	cmd.Flags().BoolVar(&object.force, "force", false, "send images that are installed already, or older")
	return p.asksAbout(cmd, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		numbers, descriptors, err := object.filters(set)
		if err != nil {
			return err
		}
		req := &rackbusv1.CheckFirmwarePlanRequest{
			ObjectId: object.object, HardwareType: object.hardware, FirmwareType: object.firmware, RackId: rackOf(set), Nodes: set,
			ForceUpdate: object.force, ComponentFilters: numbers, NodeDescriptorComponentFilters: descriptors,
		}
		if object.manifest != "" {
			if req.ConfigJson, err = object.config(ctx, r); err != nil {
				return err
			}
		}
		resp, err := r.s.firmware.CheckFirmwarePlan(ctx, req)
		if err != nil {
			return err
		}
		return r.show(resp, planTable(resp.GetPlan()))
	})
}

func newPlanGet(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "get PLAN", Short: "Show a plan", Args: cobra.ExactArgs(1), Long: "Show a kept plan.\n\n" + exitHelp}
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.firmware.GetFirmwarePlan(ctx, &rackbusv1.GetFirmwarePlanRequest{SnapshotId: r.args[0]})
		if err != nil {
			return err
		}
		return r.show(resp, planTable(resp.GetPlan()))
	})
}

func newPlanApply(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "apply", Short: "Apply a plan to the nodes it was made for",
		Long: "Apply a plan to the nodes it was made for, unchanged or not at all.\n\n" + nodesHelp + waitHelp + exitHelp,
	}
	plan := cmd.Flags().String("plan", "", "`PLAN` to apply (required)")
	token := tokenFlag(cmd, p.env)
	requires(cmd, func([]string) error {
		if *plan == "" {
			return usagef("--plan is missing: rackctl firmware plan check makes one")
		}
		return nil
	})
	return p.starts(cmd, true, func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
		secret, err := token()
		if err != nil {
			return started{}, err
		}
		req := &rackbusv1.ApplyFirmwarePlanRequest{SnapshotId: *plan, Nodes: set}
		if secret != nil {
			req.AccessToken = *secret
		}
		resp, err := r.s.firmware.ApplyFirmwarePlan(ctx, req)
		return startedBatch(resp, resp.GetResponse()), err
	})
}
