// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func newNodes(p *program) *cobra.Command {
	cmd := group("nodes", "List, register, change and remove nodes",
		newNodesList(p), newNodesGet(p), newNodesCreate(p), newNodesUpdate(p), newNodesDelete(p))
	cmd.Aliases = []string{"node"}
	return cmd
}

func sortedNodes(nodes []*rackmanager.NodeInventoryInfo) []*rackmanager.NodeInventoryInfo {
	out := slices.Clone(nodes)
	slices.SortFunc(out, func(a, b *rackmanager.NodeInventoryInfo) int {
		return cmp.Or(cmp.Compare(a.GetRackId(), b.GetRackId()), cmp.Compare(a.GetNodeId(), b.GetNodeId()))
	})
	return out
}

func nodeTable(nodes []*rackmanager.NodeInventoryInfo) *table {
	t := &table{
		columns: columns("RACK", "NODE", "TYPE", "BMC", "+BMC MAC", "HOST", "+HOST MAC", "+PROFILE"), empty: "No node matches.",
	}
	for _, n := range nodes {
		t.add(n.GetRackId(), n.GetNodeId(), typeWord(n.GetType(), n.GetNodeDescriptor()), bmcWord(n), n.GetMacAddress(),
			strings.Join(n.GetHostIpAddresses(), " "), strings.Join(n.GetHostMacAddresses(), " "),
			n.GetNodeDescriptor().GetAttributes()[node.AttrInventoryProfile])
	}
	return t
}

// bmcWord is the address of a management controller, with its port if it is odd.
func bmcWord(n *rackmanager.NodeInventoryInfo) string {
	if n.GetPort() == 0 || n.GetPort() == uint32(node.PortHTTPS) || n.GetIpAddress() == "" {
		return n.GetIpAddress()
	}
	return fmt.Sprintf("%s:%d", n.GetIpAddress(), n.GetPort())
}

func newNodesList(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the registered nodes", Args: cobra.NoArgs, Long: "List the registered nodes.\n\n" + exitHelp,
	}
	rack := cmd.Flags().String("rack", "", "only nodes of `RACK`")
	var nodeType string
	addType(cmd, &nodeType, "only nodes of `NODE_TYPE`")
	register(cmd, "rack", p.completeRacks)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
		if err != nil {
			return err
		}
		resp.Nodes = slices.DeleteFunc(sortedNodes(resp.GetNodes()), func(n *rackmanager.NodeInventoryInfo) bool {
			return *rack != "" && n.GetRackId() != *rack || nodeType != "" && typeWord(n.GetType(), n.GetNodeDescriptor()) != strings.ToLower(nodeType)
		})
		return r.show(resp, nodeTable(resp.GetNodes()))
	})
}

// find returns a registered node.
func (s *server) find(ctx context.Context, ref node.Ref) (*rackmanager.NodeInventoryInfo, error) {
	resp, err := s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
	if err != nil {
		return nil, err
	}
	for _, n := range resp.GetNodes() {
		if n.GetRackId() == ref.RackID && n.GetNodeId() == ref.NodeID {
			return n, nil
		}
	}
	return nil, notFoundf("node %s is not registered", place(ref.RackID, ref.NodeID))
}

func newNodesGet(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "get [RACK/]NODE", Short: "Show a node and where it sits",
		Long: "Show what is registered of a node, and its slot and tray as the device tells them\nwith --device.\n\n" + exitHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: once(p.completeNodes),
	}
	rack := cmd.Flags().String("rack", "", "`RACK` of the node")
	device := cmd.Flags().Bool("device", false, "ask the device where it sits")
	register(cmd, "rack", p.completeRacks)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		ref, err := reference(*rack, r.args[0])
		if err != nil {
			return err
		}
		n, err := r.s.find(ctx, ref)
		if err != nil {
			return err
		}
		t := &table{columns: columns("NODE", place(ref.RackID, ref.NodeID))}
		for _, row := range [][2]string{
			{"Type", typeWord(n.GetType(), n.GetNodeDescriptor())}, {"BMC", bmcWord(n)}, {"BMC MAC", n.GetMacAddress()},
			{"Host", strings.Join(n.GetHostIpAddresses(), " ")}, {"Host MAC", strings.Join(n.GetHostMacAddresses(), " ")},
			{"Profile", n.GetNodeDescriptor().GetAttributes()[node.AttrInventoryProfile]},
		} {
			if row[1] != "" {
				t.add(row[0], row[1])
			}
		}
		if !*device {
			return r.show(n, t)
		}
		info, err := r.s.racks.GetNodeDeviceInfo(ctx, &rackmanager.GetNodeDeviceInfoRequest{RackId: ref.RackID, NodeId: ref.NodeID})
		if err != nil {
			return err
		}
		if d := info.GetDeviceInfo(); d != nil {
			addOptional(t, "Chassis", d.ChassisSn)
			addOptional(t, "Slot", d.SlotNumber)
			addOptional(t, "Tray", d.TrayIndex)
		}
		if err := r.show(info, t); err != nil {
			return err
		}
		if !succeeded(info.GetStatus()) {
			return failedf("the device was not read: %s", cell(info.GetMessage()))
		}
		return nil
	})
}

func addOptional[N int64 | uint32](t *table, name string, n *N) {
	if n != nil {
		t.add(name, fmt.Sprint(*n))
	}
}

func newNodesCreate(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "create -f FILE [NODE...]", Short: "Register the nodes of an inventory file",
		Long: `Register the nodes of an inventory file, or those of them that arguments name. A
node that cannot be registered does not stop the others. --dry-run shows which
nodes are new and how registered ones differ, and changes nothing.

` + columnHelp + "\n\n" + exitHelp,
		Example: `  rackctl nodes create -f nodes.csv --dry-run
  rackctl nodes create -f nodes.csv --user admin --password-file bmc.password`,
	}
	return p.registers(cmd, compareNodes, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		resp, err := r.s.racks.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: set})
		if err != nil {
			return err
		}
		return r.outcome(resp, resp.GetResponse())
	})
}

// outcome shows the answer of a call without a table of its own.
func (r *request) outcome(answer any, resp *rackmanager.OperationResponse) error {
	if r.out.data() {
		if err := r.out.write(r.p.env.Stdout, answer); err != nil {
			return err
		}
	}
	lines := strings.Split(strings.TrimSpace(resp.GetMessage()), "\n")
	for i := range lines {
		lines[i] = cell(lines[i])
	}
	text := strings.Join(lines, "\n  ")
	if !succeeded(resp.GetStatus()) {
		return failedf("%s", text)
	}
	if !r.out.data() {
		fmt.Fprintln(r.p.env.Stdout, text)
	}
	return nil
}

// nodeChange is one line of a comparison with the inventory.
type nodeChange struct {
	Rack   string   `json:"rack_id"`
	Node   string   `json:"node_id"`
	Action string   `json:"action"`
	Differ []string `json:"differences,omitempty"`
}

// compareNodes shows what CreateNodes would do.
func compareNodes(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
	resp, err := r.s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
	if err != nil {
		return err
	}
	known := make(map[node.Ref]*rackmanager.NodeInventoryInfo)
	for _, n := range resp.GetNodes() {
		known[node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()}] = n
	}
	var changes []nodeChange
	t := &table{columns: columns("RACK", "NODE", "WOULD BE", "DIFFERENCE")}
	for _, n := range set.GetNodes() {
		c := nodeChange{Rack: n.GetRackId(), Node: n.GetNodeId(), Action: "created"}
		look := good
		if have, found := known[node.Ref{RackID: c.Rack, NodeID: c.Node}]; found {
			c.Action, look = "refused: registered already", dim
			if c.Differ = nodeDifferences(have, n); len(c.Differ) > 0 {
				look = odd
			}
		}
		changes = append(changes, c)
		t.add(c.Rack, c.Node, field{c.Action, look}, strings.Join(c.Differ, "; "))
	}
	return r.show(changes, t)
}

// nodeDifferences tells how a described node differs from what is registered.
func nodeDifferences(have *rackmanager.NodeInventoryInfo, want *rackmanager.NodeInfo) []string {
	var out []string
	differ := func(what, have, want string) {
		if !strings.EqualFold(have, want) {
			out = append(out, fmt.Sprintf("%s %s in place of %s", what, cell(want), cell(have)))
		}
	}
	first := func(s []string) string {
		if len(s) == 0 {
			return ""
		}
		return s[0]
	}
	differ("type", typeWord(have.GetType(), have.GetNodeDescriptor()), typeWord(want.GetType(), want.GetNodeDescriptor()))
	bmc, host := want.GetBmcEndpoint(), want.GetHostEndpoint()
	differ("bmc_address", have.GetIpAddress(), bmc.GetInterface().GetIpAddress())
	differ("bmc_mac", have.GetMacAddress(), bmc.GetInterface().GetMacAddress())
	differ("bmc_port", portWord(have.GetPort()), portWord(bmc.GetPort()))
	differ("host_address", first(have.GetHostIpAddresses()), host.GetInterface().GetIpAddress())
	return out
}

func portWord(port uint32) string {
	if port == 0 {
		port = uint32(node.PortHTTPS)
	}
	return itoa(port)
}

func newNodesUpdate(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "update -f FILE [NODE...]", Short: "Replace the endpoints of registered nodes",
		Long: `Replace the endpoints of registered nodes by those of an inventory file; endpoints
that the file does not have stay as they are. --dry-run shows the differences.

` + exitHelp,
		Example: `  rackctl nodes update -f nodes.csv lab/tray-07`,
	}
	return p.registers(cmd, compareUpdates, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		refs := refsOfSet(set)
		return r.each(ctx, "updated", refs, func(i int) (string, error) {
			n := set.GetNodes()[i]
			resp, err := r.s.racks.UpdateNode(ctx, &rackmanager.UpdateNodeRequest{
				RackId: n.GetRackId(), NodeId: n.GetNodeId(),
				UpdateInfo: &rackmanager.NodeUpdateInfo{BmcEndpoint: n.GetBmcEndpoint(), HostEndpoint: n.GetHostEndpoint()},
			})
			return failureText(resp.GetResponse()), err
		})
	})
}

func compareUpdates(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
	var changes []nodeChange
	t := &table{columns: columns("RACK", "NODE", "WOULD BE", "DIFFERENCE")}
	for _, n := range set.GetNodes() {
		have, err := r.s.find(ctx, node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()})
		var judged *exitError
		c := nodeChange{Rack: n.GetRackId(), Node: n.GetNodeId(), Action: "updated"}
		switch {
		case errors.As(err, &judged) && judged.code == ExitNotFound:
			c.Action = "refused: not registered"
		case err != nil:
			return err
		default:
			c.Differ = nodeDifferences(have, n)
		}
		changes = append(changes, c)
		t.add(c.Rack, c.Node, c.Action, strings.Join(c.Differ, "; "))
	}
	return r.show(changes, t)
}

func refsOfSet(set *rackmanager.NodeSet) []node.Ref {
	var out []node.Ref
	for _, n := range set.GetNodes() {
		out = append(out, node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()})
	}
	return out
}

// failureText is why a call failed, "" when it did not.
func failureText(r *rackmanager.OperationResponse) string {
	if succeeded(r.GetStatus()) {
		return ""
	}
	return cmp.Or(r.GetMessage(), "no reason was given")
}

func newNodesDelete(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete [RACK/]NODE...", Aliases: []string{"rm"}, Short: "Remove nodes from the inventory",
		Long: "Remove nodes from the inventory. The devices are not touched.\n\n" + exitHelp,
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: p.completeNodes,
	}
	rack := cmd.Flags().String("rack", "", "`RACK` of the nodes")
	dry := cmd.Flags().Bool("dry-run", false, "show the nodes, remove nothing")
	yes := addYes(cmd)
	register(cmd, "rack", p.completeRacks)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		refs, err := references(*rack, r.args)
		if err != nil {
			return err
		}
		if *dry {
			found := &rackmanager.ListNodeInventoryResponse{}
			for _, ref := range refs {
				n, err := r.s.find(ctx, ref)
				if err != nil {
					return err
				}
				found.Nodes = append(found.Nodes, n)
			}
			return r.show(found, nodeTable(found.GetNodes()))
		}
		if err := p.confirm(*yes, "Remove %s from the inventory", strings.Join(r.args, ", ")); err != nil {
			return err
		}
		return r.each(ctx, "removed", refs, func(i int) (string, error) {
			resp, err := r.s.racks.DeleteNode(ctx, &rackmanager.DeleteNodeRequest{RackId: refs[i].RackID, NodeId: refs[i].NodeID})
			return failureText(resp.GetResponse()), err
		})
	})
}

// nodeOutcome is what became of one registered node.
type nodeOutcome struct {
	Rack   string `json:"rack_id"`
	Node   string `json:"node_id"`
	OK     bool   `json:"ok"`
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (o *nodeOutcome) ref() node.Ref { return node.Ref{RackID: o.Rack, NodeID: o.Node} }

// each makes one call for each node, in order, and shows what became of them. do returns why the node failed; its error
// ends the command.
func (r *request) each(ctx context.Context, done string, refs []node.Ref, do func(i int) (string, error)) error {
	outcomes := make([]nodeOutcome, 0, len(refs))
	for i, ref := range refs {
		reason, err := do(i)
		if err != nil {
			if i > 0 {
				_ = r.showOutcomes(ctx, done, outcomes) // what was done is known all the same
			}
			return err
		}
		outcomes = append(outcomes, nodeOutcome{Rack: ref.RackID, Node: ref.NodeID, OK: reason == "", Reason: reason})
	}
	return r.showOutcomes(ctx, done, outcomes)
}

func (r *request) showOutcomes(ctx context.Context, done string, outcomes []nodeOutcome) error {
	t := &table{columns: columns("RACK", "NODE", "RESULT", "WHY")}
	var failed []node.Ref
	for _, o := range outcomes {
		result := field{done, good}
		if !o.OK {
			failed = append(failed, o.ref())
			result = field{"failed", bad}
		}
		t.add(o.Rack, o.Node, result, o.Reason)
	}
	if err := r.show(outcomes, t); err != nil {
		return err
	}
	if len(failed) > 0 {
		return r.s.failedNodes(ctx, failed, fmt.Sprintf("%d of %d nodes failed", len(failed), len(outcomes)))
	}
	return nil
}

// failedNodes is the error about nodes that failed: that of nodes which are not there when none of them is registered.
func (s *server) failedNodes(ctx context.Context, failed []node.Ref, text string) error {
	resp, err := s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
	if err != nil {
		return failedf("%s", text)
	}
	for _, n := range resp.GetNodes() {
		if slices.Contains(failed, node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()}) {
			return failedf("%s", text)
		}
	}
	return notFoundf("%s", text)
}
