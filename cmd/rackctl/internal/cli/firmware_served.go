// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// runServed lets the server update registered nodes from files on its own host:
// one node, or all of one type in a rack.
func (f *updateFlags) runServed(ctx context.Context, p *program, cmd *cobra.Command, files []string) error {
	for _, flag := range []string{"bmc", "state", "host", "ca", "tls-name", "user", "password-file", "host-user", "host-password-file"} {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s is for devices that are driven from here: give --direct, or leave it out", flag)
		}
	}
	if f.node == "" && (f.rack == "" || f.nodeType == "") {
		return usagef("which nodes? give --direct with --bmc, or --node RACK/NODE, or --rack RACK with --type NODE_TYPE")
	}
	if n := len(f.components); n > 0 && n != len(files) {
		return usagef("%d files and %d components: give --component once for each file, in their order", len(files), n)
	}
	targets := make([]*rackmanager.FirmwareTarget, len(files))
	for i, file := range files {
		targets[i] = &rackmanager.FirmwareTarget{Filename: file}
		if len(f.components) > 0 {
			targets[i].Target = f.components[i]
		}
	}
	if !f.out.given() {
		f.out.form = formTable
		if err := f.out.settle(p); err != nil {
			return err
		}
	}
	if f.node == "" {
		return f.updateType(ctx, p, targets)
	}
	ref, err := reference(f.rack, f.node)
	if err != nil {
		return err
	}
	return p.with(ctx, func(ctx context.Context, s *server) error {
		resp, err := s.racks.UpdateFirmware(f.jobs.context(ctx), &rackmanager.UpdateFirmwareRequest{
			RackId: ref.RackID, NodeId: ref.NodeID, FirmwareTargets: targets, Activate: !f.noActivate, ForceUpdate: f.force,
		})
		if err != nil {
			return err
		}
		st := started{answer: resp, jobID: resp.GetJobId()}
		if !succeeded(resp.GetStatus()) {
			st.failure = s.failedNodes(ctx, []node.Ref{ref}, "the update was refused: "+cell(resp.GetMessage()))
		}
		return f.jobs.follow(ctx, &request{p: p, s: s, out: f.out}, st)
	})
}

// updateType updates all registered nodes of one type in a rack.
func (f *updateFlags) updateType(ctx context.Context, p *program, targets []*rackmanager.FirmwareTarget) error {
	t, known := node.ByID(strings.ToLower(f.nodeType))
	if !known {
		return usagef("unknown node type %q; there are %s", f.nodeType, strings.Join(typeIDs(), ", "))
	}
	req := &rackmanager.BatchUpdateFirmwareByNodeTypeRequest{
		RackId: f.rack, NodeType: rackmanager.NodeType(t.Number), FirmwareTargets: targets, Activate: !f.noActivate, ForceUpdate: f.force,
	}
	if t.DescriptorOnly() {
		req.NodeDescriptor = &rackmanager.NodeDescriptor{Attributes: t.Descriptor()}
	}
	return p.with(ctx, func(ctx context.Context, s *server) error {
		resp, err := s.racks.BatchUpdateFirmwareByNodeType(f.jobs.context(ctx), req)
		if err != nil {
			return err
		}
		return f.jobs.follow(ctx, &request{p: p, s: s, out: f.out}, startedBatch(resp, resp.GetResponse()))
	})
}
