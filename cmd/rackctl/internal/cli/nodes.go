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
	nodeType := cmd.Flags().String("type", "", "only nodes of `NODE_TYPE`")
	register(cmd, "rack", p.completeRacks)
	complete(cmd, "type", typeIDs())
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
		if err != nil {
			return err
		}
		resp.Nodes = slices.DeleteFunc(sortedNodes(resp.GetNodes()), func(n *rackmanager.NodeInventoryInfo) bool {
			return *rack != "" && n.GetRackId() != *rack || *nodeType != "" && typeWord(n.GetType(), n.GetNodeDescriptor()) != strings.ToLower(*nodeType)
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
		Args: cobra.ExactArgs(1), ValidArgsFunction: p.completeNodes,
	}
	rack := cmd.Flags().String("rack", "", "`RACK` of the node")
	device := cmd.Flags().Bool("device", false, "ask the device where it sits")
	out := answers(cmd)
	register(cmd, "rack", p.completeRacks)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.settle(p); err != nil {
			return err
		}
		ref, err := reference(*rack, args[0])
		if err != nil {
			return err
		}
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			n, err := s.find(ctx, ref)
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
			if !*device || out.data() {
				return out.show(p.env, n, t)
			}
			info, err := s.racks.GetNodeDeviceInfo(ctx, &rackmanager.GetNodeDeviceInfoRequest{RackId: ref.RackID, NodeId: ref.NodeID})
			if err != nil {
				return err
			}
			if d := info.GetDeviceInfo(); d != nil {
				addOptional(t, "Chassis", d.ChassisSn)
				addOptional(t, "Slot", d.SlotNumber)
				addOptional(t, "Tray", d.TrayIndex)
			}
			if err := out.show(p.env, n, t); err != nil {
				return err
			}
			if !succeeded(info.GetStatus()) {
				return failedf("the device was not read: %s", cell(info.GetMessage()))
			}
			return nil
		})
	}
	return cmd
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
	f := addNodeFlags(cmd, p)
	dry := cmd.Flags().Bool("dry-run", false, "show what would be registered")
	out := answers(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.settle(p); err != nil {
			return err
		}
		if f.file == "" {
			return usagef("give the inventory with -f FILE")
		}
		env := *p.env
		if *dry {
			env.Ask = nil // no password is needed to compare
		}
		q := &program{env: &env, conn: p.conn}
		set, err := f.nodes(cmd.Context(), q, nil, cmd, args)
		if err != nil {
			return err
		}
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			if *dry {
				return p.compareNodes(ctx, s, out, set)
			}
			resp, err := s.racks.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: set})
			if err != nil {
				return err
			}
			return p.outcome(out, resp, resp.GetResponse())
		})
	}
	return cmd
}

// outcome shows the answer of a call without a table of its own.
func (p *program) outcome(out *output, resp any, r *rackmanager.OperationResponse) error {
	if out.data() {
		if err := out.write(p.env.Stdout, resp); err != nil {
			return err
		}
	}
	lines := strings.Split(strings.TrimSpace(r.GetMessage()), "\n")
	for i := range lines {
		lines[i] = cell(lines[i])
	}
	text := strings.Join(lines, "\n  ")
	if !succeeded(r.GetStatus()) {
		return failedf("%s", text)
	}
	if !out.data() {
		fmt.Fprintln(p.env.Stdout, text)
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
func (p *program) compareNodes(ctx context.Context, s *server, out *output, set *rackmanager.NodeSet) error {
	resp, err := s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
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
	return out.show(p.env, changes, t)
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
	f := addNodeFlags(cmd, p)
	dry := cmd.Flags().Bool("dry-run", false, "show what would be changed")
	out := answers(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.settle(p); err != nil {
			return err
		}
		if f.file == "" {
			return usagef("give the inventory with -f FILE")
		}
		set, err := f.nodes(cmd.Context(), p, nil, cmd, args)
		if err != nil {
			return err
		}
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			if *dry {
				return p.compareUpdates(ctx, s, out, set)
			}
			return p.eachRegistered(out, "updated", refsOfSet(set), func(i int) (string, error) {
				n := set.GetNodes()[i]
				resp, err := s.racks.UpdateNode(ctx, &rackmanager.UpdateNodeRequest{
					RackId: n.GetRackId(), NodeId: n.GetNodeId(),
					UpdateInfo: &rackmanager.NodeUpdateInfo{BmcEndpoint: n.GetBmcEndpoint(), HostEndpoint: n.GetHostEndpoint()},
				})
				return failureText(resp.GetResponse()), err
			})
		})
	}
	return cmd
}

func (p *program) compareUpdates(ctx context.Context, s *server, out *output, set *rackmanager.NodeSet) error {
	var changes []nodeChange
	t := &table{columns: columns("RACK", "NODE", "WOULD BE", "DIFFERENCE")}
	for _, n := range set.GetNodes() {
		have, err := s.find(ctx, node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()})
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
	return out.show(p.env, changes, t)
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
	out := answers(cmd)
	register(cmd, "rack", p.completeRacks)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := out.settle(p); err != nil {
			return err
		}
		refs, err := references(*rack, args)
		if err != nil {
			return err
		}
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			if *dry {
				found := &rackmanager.ListNodeInventoryResponse{}
				for _, ref := range refs {
					n, err := s.find(ctx, ref)
					if err != nil {
						return err
					}
					found.Nodes = append(found.Nodes, n)
				}
				return out.show(p.env, found, nodeTable(found.GetNodes()))
			}
			if err := p.confirm(*yes, "Remove %s from the inventory", strings.Join(args, ", ")); err != nil {
				return err
			}
			return p.eachRegistered(out, "removed", refs, func(i int) (string, error) {
				resp, err := s.racks.DeleteNode(ctx, &rackmanager.DeleteNodeRequest{RackId: refs[i].RackID, NodeId: refs[i].NodeID})
				return failureText(resp.GetResponse()), err
			})
		})
	}
	return cmd
}

// nodeOutcome is what became of one registered node.
type nodeOutcome struct {
	Rack   string `json:"rack_id"`
	Node   string `json:"node_id"`
	OK     bool   `json:"ok"`
	State  string `json:"state,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// eachRegistered makes one call for each node, in order, and shows what became of
// them. do returns why the node failed; its error ends the command.
func (p *program) eachRegistered(out *output, done string, refs []node.Ref, do func(i int) (string, error)) error {
	outcomes := make([]nodeOutcome, 0, len(refs))
	for i, ref := range refs {
		reason, err := do(i)
		if err != nil {
			if i > 0 {
				_ = p.showOutcomes(out, done, outcomes) // what was done is known all the same
			}
			return err
		}
		outcomes = append(outcomes, nodeOutcome{Rack: ref.RackID, Node: ref.NodeID, OK: reason == "", Reason: reason})
	}
	return p.showOutcomes(out, done, outcomes)
}

func (p *program) showOutcomes(out *output, done string, outcomes []nodeOutcome) error {
	t := &table{columns: columns("RACK", "NODE", "RESULT", "WHY")}
	bads := 0
	for _, o := range outcomes {
		result := field{done, good}
		if !o.OK {
			bads++
			result = field{"failed", bad}
		}
		t.add(o.Rack, o.Node, result, o.Reason)
	}
	if err := out.show(p.env, outcomes, t); err != nil {
		return err
	}
	if bads > 0 {
		return failedf("%d of %d nodes failed", bads, len(outcomes))
	}
	return nil
}
