// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// nodeFlags choose the nodes of a call that takes them with addresses and logins:
// those of an inventory file, or registered ones with a login given here.
type nodeFlags struct {
	file, rack, nodeType string
	login, hostLogin     loginFlags
	// unasked leaves out passwords that nobody has given: none is needed to compare.
	unasked bool
}

// nodesHelp tells how nodes are chosen.
const nodesHelp = `The nodes come from an inventory file (-f; see rackctl nodes create --help), or are
registered ones (--rack), whose addresses the server knows and whose logins are
given here: the server never gives away those that it keeps. Arguments, NODE or
RACK/NODE, and --type choose some of them; without, all are taken.

`

func addNodeFlags(cmd *cobra.Command, p *program) *nodeFlags {
	f := &nodeFlags{}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "file", "f", "", "inventory `FILE` with the nodes: CSV, YAML or JSON; - is standard input")
	flags.StringVar(&f.rack, "rack", "", "`RACK` of the nodes")
	addType(cmd, &f.nodeType, "`NODE_TYPE` of the nodes")
	f.login.add(cmd, "", envPassword, "management controllers")
	f.hostLogin.add(cmd, "host-", envHostPassword, "operating systems")
	register(cmd, "rack", p.completeRacks)
	cmd.ValidArgsFunction = p.completeNodes
	return f
}

// nodes are the chosen nodes with their logins. family is that of the nodes the
// call is about: registered nodes of others are passed over.
func (f *nodeFlags) nodes(ctx context.Context, p *program, s *server, cmd *cobra.Command, args []string, families ...node.Family,
) (*rackmanager.NodeSet, error) {
	if (f.file == "") == (f.rack == "") && f.file == "" {
		return nil, usagef("no nodes: give -f FILE or --rack RACK")
	}
	var all []*rackmanager.NodeInfo
	var err error
	if f.file != "" {
		all, err = f.fromFile(p.env)
	} else {
		all, err = f.fromServer(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	chosen, err := f.choose(all, args, families)
	if err != nil {
		return nil, err
	}
	if err := f.logIn(p.env, cmd, chosen); err != nil {
		return nil, err
	}
	return &rackmanager.NodeSet{Nodes: chosen}, nil
}

func (f *nodeFlags) fromFile(env *Env) ([]*rackmanager.NodeInfo, error) {
	entries, err := readEntries(env, f.file)
	if len(entries) == 0 {
		return nil, err
	}
	b := nodeBuilder{env: env, file: f.file, private: f.file == "-" || privateFile(f.file)}
	nodes, faults := b.build(entries)
	if err := errors.Join(err, faults); err != nil {
		return nil, &exitError{ExitUsage, err}
	}
	return nodes, nil
}

// fromServer makes nodes of what the inventory shows. It has no ports and names of
// hosts; switches answer at the standard port.
func (f *nodeFlags) fromServer(ctx context.Context, s *server) ([]*rackmanager.NodeInfo, error) {
	resp, err := s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
	if err != nil {
		return nil, err
	}
	var out []*rackmanager.NodeInfo
	for _, n := range sortedNodes(resp.GetNodes()) {
		if n.GetRackId() != f.rack {
			continue
		}
		info := &rackmanager.NodeInfo{NodeId: n.GetNodeId(), RackId: n.GetRackId()}
		if n.GetType() != rackmanager.NodeType_NODE_TYPE_UNSPECIFIED && n.GetNodeDescriptor().GetAttributes()[node.AttrInventoryProfile] == "" {
			info.Type = n.GetType().Enum()
		} else {
			info.NodeDescriptor = n.GetNodeDescriptor()
		}
		if n.GetIpAddress() != "" {
			info.BmcEndpoint = &rackmanager.Endpoint{Port: n.GetPort(), Interface: &rackmanager.NetworkInterface{
				IpAddress: n.GetIpAddress(), MacAddress: n.GetMacAddress(),
			}}
		}
		if ips := n.GetHostIpAddresses(); len(ips) > 0 {
			info.HostEndpoint = &rackmanager.Endpoint{Interface: &rackmanager.NetworkInterface{IpAddress: ips[0]}}
			if macs := n.GetHostMacAddresses(); len(macs) > 0 {
				info.HostEndpoint.Interface.MacAddress = macs[0]
			}
		}
		out = append(out, info)
	}
	if len(out) == 0 {
		return nil, notFoundf("rack %s has no registered nodes", f.rack)
	}
	return out, nil
}

// choose takes the nodes that the arguments and the type name.
func (f *nodeFlags) choose(all []*rackmanager.NodeInfo, args []string, families []node.Family) ([]*rackmanager.NodeInfo, error) {
	wanted := make(map[string]bool)
	for _, a := range args {
		wanted[a] = false
	}
	var out []*rackmanager.NodeInfo
	for _, n := range all {
		t, _ := node.ByID(typeWord(n.GetType(), n.GetNodeDescriptor()))
		if f.rack != "" && n.GetRackId() != f.rack || f.nodeType != "" && t.ID != strings.ToLower(f.nodeType) ||
			len(families) > 0 && !slices.Contains(families, t.Family) {
			continue
		}
		if len(args) > 0 {
			short, long := n.GetNodeId(), place(n.GetRackId(), n.GetNodeId())
			_, byShort := wanted[short]
			_, byLong := wanted[long]
			if !byShort && !byLong {
				continue
			}
			if byShort {
				wanted[short] = true
			}
			if byLong {
				wanted[long] = true
			}
		}
		out = append(out, n)
	}
	for _, a := range args {
		if !wanted[a] {
			return nil, notFoundf("no node %s of the wanted kind is among the %d given", a, len(all))
		}
	}
	if len(out) == 0 {
		return nil, notFoundf("none of the %d nodes is of the wanted kind", len(all))
	}
	return out, nil
}

// logIn fills in the logins that the nodes lack. Each is asked for once.
func (f *nodeFlags) logIn(env *Env, cmd *cobra.Command, nodes []*rackmanager.NodeInfo) error {
	if f.login.file == "-" && (f.hostLogin.file == "-" || f.file == "-") || f.hostLogin.file == "-" && f.file == "-" {
		return usagef("only one of -f, --password-file and --host-password-file can be standard input")
	}
	for _, side := range []struct {
		flags *loginFlags
		of    func(*rackmanager.NodeInfo) *rackmanager.Endpoint
	}{
		{&f.login, (*rackmanager.NodeInfo).GetBmcEndpoint}, {&f.hostLogin, (*rackmanager.NodeInfo).GetHostEndpoint},
	} {
		shared, err := side.flags.optional(env, cmd)
		if err != nil {
			return err
		}
		asked := false
		for _, n := range nodes {
			e := side.of(n)
			if e == nil {
				continue
			}
			have := e.GetCredentials().GetUserPass()
			if have.GetUsername() != "" && have.GetPassword() != "" {
				continue
			}
			if shared == "" && !asked && !f.unasked && env.Ask != nil && sideNeeded(n, e) {
				asked = true
				raw, err := side.flags.password(env)
				if err != nil {
					return err
				}
				shared = string(raw)
			}
			user, password := have.GetUsername(), have.GetPassword()
			if user == "" {
				user = side.flags.user
			}
			if password == "" {
				password = shared
			}
			if password != "" {
				e.Credentials = userPass(user, password)
			}
		}
	}
	return nil
}

// sideNeeded says that jobs log in on this side: switches through the operating
// system, all others through the management controller.
func sideNeeded(n *rackmanager.NodeInfo, e *rackmanager.Endpoint) bool {
	t, _ := node.ByID(typeWord(n.GetType(), n.GetNodeDescriptor()))
	if t.Family == node.FamilySwitch {
		return e == n.GetHostEndpoint()
	}
	return e == n.GetBmcEndpoint()
}

// reference names a registered node: RACK/NODE, or NODE with --rack.
func reference(rack, arg string) (node.Ref, error) {
	r, n, both := strings.Cut(arg, "/")
	if !both {
		r, n = rack, arg
	}
	if r == "" || n == "" {
		return node.Ref{}, usagef("%q names no node: write RACK/NODE, or give --rack", arg)
	}
	if both && rack != "" && r != rack {
		return node.Ref{}, usagef("%s is not in rack %s", arg, rack)
	}
	return node.Ref{RackID: r, NodeID: n}, nil
}

func references(rack string, args []string) ([]node.Ref, error) {
	out := make([]node.Ref, len(args))
	for i, a := range args {
		var err error
		if out[i], err = reference(rack, a); err != nil {
			return nil, err
		}
	}
	return out, nil
}
