// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func newFirmware(p *program) *cobra.Command {
	return group("firmware", "Inspect firmware packages, update nodes, and keep firmware objects",
		newInspect(p.env), newExtract(p.env), newUpdate(p), newFirmwareInventory(p), newFirmwareCompare(p), newFirmwareApply(p),
		newFirmwareHistory(p), newFirmwareObject(p), newFirmwarePlan(p))
}

func newFirmwareInventory(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "inventory [RACK/]NODE...", Aliases: []string{"inv"}, Short: "Read the installed versions",
		Long: "Read the installed firmware of registered nodes from the devices, those named or\nall of a rack.\n\n" + exitHelp,
		Example: `  rackctl firmware inventory lab/tray-01
  rackctl firmware inventory --rack lab --component BMC`,
		ValidArgsFunction: p.completeNodes,
	}
	rack := cmd.Flags().String("rack", "", "`RACK` of the nodes; without names, all of it")
	component := cmd.Flags().String("component", "", "only components whose name has this `TEXT` in it")
	register(cmd, "rack", p.completeRacks)
	requires(cmd, func(args []string) error {
		if len(args) == 0 && *rack == "" {
			return usagef("name nodes, or give --rack RACK")
		}
		return nil
	})
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		refs, err := references(*rack, r.args)
		if err != nil {
			return err
		}
		inv, failure, err := r.s.firmwareInventory(ctx, *rack, refs)
		if err != nil {
			return err
		}
		t := &table{columns: columns("NODE", "COMPONENT", "VERSION", "UPDATEABLE", "HEALTH", "+TARGET"), empty: "Nothing could be read."}
		for _, n := range inv {
			for _, f := range n.GetFirmwareList() {
				if strings.Contains(strings.ToUpper(f.GetName()), strings.ToUpper(*component)) {
					t.add(n.GetNodeId(), f.GetName(), f.GetVersion(), okWord(f.GetUpdateable()), f.GetHealth(), f.GetTarget())
				}
			}
		}
		if len(inv) > 0 {
			t.empty = "No component matches."
		}
		if err := r.show(&rackmanager.GetRackFirmwareInventoryResponse{Status: codeOf(failure), Nodes: inv}, t); err != nil {
			return err
		}
		return failure
	})
}

// firmwareInventory reads the named nodes, or all of a rack; failure is why some could not be read.
func (s *server) firmwareInventory(ctx context.Context, rack string, refs []node.Ref) (inv []*rackmanager.NodeFirmwareInventory, failure, err error) {
	if len(refs) == 0 {
		ctx, reason := withReason(ctx)
		resp, err := s.racks.GetRackFirmwareInventory(ctx, &rackmanager.GetRackFirmwareInventoryRequest{RackId: rack})
		if err != nil {
			return nil, nil, err
		}
		if !succeeded(resp.GetStatus()) {
			failure = s.failedRack(ctx, rack, "not every node could be read: "+cell(*reason))
		}
		return resp.GetNodes(), failure, nil
	}
	var failed []node.Ref
	var reasons []string
	for _, ref := range refs {
		ctx, reason := withReason(ctx)
		resp, err := s.racks.GetNodeFirmwareInventory(ctx, &rackmanager.GetNodeFirmwareInventoryRequest{RackId: ref.RackID, NodeId: ref.NodeID})
		if err != nil {
			return nil, nil, err
		}
		if !succeeded(resp.GetStatus()) {
			failed = append(failed, ref)
			reasons = append(reasons, fmt.Sprintf("%s could not be read: %s", cell(place(ref.RackID, ref.NodeID)), cell(*reason)))
			continue
		}
		inv = append(inv, &rackmanager.NodeFirmwareInventory{NodeId: ref.NodeID, FirmwareList: resp.GetFirmwareList()})
	}
	if len(failed) > 0 {
		failure = s.failedNodes(ctx, failed, strings.Join(reasons, "\n"))
	}
	return inv, failure, nil
}

// failedRack is the error about a rack: that of one which is not there when no node is registered in it.
func (s *server) failedRack(ctx context.Context, rack, text string) error {
	resp, err := s.racks.ListRacks(ctx, &rackmanager.ListRacksRequest{})
	if err == nil && !slices.Contains(resp.GetRackIds(), rack) {
		return notFoundf("%s", text)
	}
	return failedf("%s", text)
}

func codeOf(failure error) rackmanager.ReturnCode {
	if failure != nil {
		return rackmanager.ReturnCode_RETURN_CODE_FAILURE
	}
	return rackmanager.ReturnCode_RETURN_CODE_SUCCESS
}

func newFirmwareHistory(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "history", Short: "List which firmware objects were applied where", Args: cobra.NoArgs,
		Long: "List which firmware objects were applied where, newest first.\n\n" + exitHelp,
	}
	req := &rackmanager.GetFirmwareObjectHistoryRequest{}
	cmd.Flags().StringVar(&req.ObjectId, "object", "", "only this `OBJECT`")
	cmd.Flags().StringSliceVar(&req.RackIds, "rack", nil, "only these `RACKS`")
	register(cmd, "object", p.completeObjects)
	register(cmd, "rack", p.completeRacks)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.racks.GetFirmwareObjectHistory(ctx, req)
		if err != nil {
			return err
		}
		t := &table{columns: columns("APPLIED", "OBJECT", "FIRMWARE", "HARDWARE", "RACK", ">NODES", "+IDS"), empty: "Nothing was applied."}
		for _, r := range resp.GetRecords() {
			t.add(at(r.GetAppliedAt()), r.GetObjectId(), r.GetFirmwareType(), r.GetHardwareType(), r.GetRackId(), len(r.GetNodeIds()),
				strings.Join(r.GetNodeIds(), " "))
		}
		return r.show(resp, t)
	})
}
