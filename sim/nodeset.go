// SPDX-License-Identifier: Apache-2.0

package sim

import "strings"

// NodeSet is the rack as the rack manager's NodeSet message in its JSON form.
type NodeSet struct {
	Nodes []Node `json:"nodes"`
}

// Node is a NodeInfo. It has either a type or, for types without a NodeType value, a descriptor.
type Node struct {
	NodeID         string          `json:"nodeId"`
	RackID         string          `json:"rackId"`
	Type           string          `json:"type,omitempty"`
	NodeDescriptor *NodeDescriptor `json:"nodeDescriptor,omitempty"`
	BMCEndpoint    Endpoint        `json:"bmcEndpoint"`
	HostEndpoint   *Endpoint       `json:"hostEndpoint,omitempty"`
}

// NodeDescriptor is a NodeDescriptor.
type NodeDescriptor struct {
	Attributes map[string]string `json:"attributes"`
}

// Endpoint is an Endpoint with user name and password.
type Endpoint struct {
	Interface   Interface   `json:"interface"`
	Port        int         `json:"port"`
	Credentials Credentials `json:"credentials"`
}

// Interface is a NetworkInterface.
type Interface struct {
	IPAddress  string `json:"ipAddress"`
	MACAddress string `json:"macAddress,omitempty"`
}

// Credentials is a Credentials of kind user_pass.
type Credentials struct {
	UserPass UserPass `json:"userPass"`
}

// UserPass is a UsernamePassword.
type UserPass struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// NodeSet returns the rack in a form that CreateNodes takes.
func (r *Rack) NodeSet() NodeSet {
	out := NodeSet{Nodes: make([]Node, 0, len(r.devices)+len(r.switches))}
	for _, d := range r.devices {
		out.Nodes = append(out.Nodes, d.node())
	}
	for i, s := range r.switches {
		out.Nodes = append(out.Nodes, r.switchNode(s, i))
	}
	return out
}

// InventoryRow is a node as inventory files of rackctl name it.
type InventoryRow struct {
	Rack, Node string
	// Type is the id of the node type, for example "compute_gb200_nvidia".
	Type string
	BMC  Endpoint
	// Host is nil where the node has none.
	Host *Endpoint
}

// Inventory returns the nodes of NodeSet in its order, their types by id.
func (r *Rack) Inventory() []InventoryRow {
	out := make([]InventoryRow, 0, len(r.devices)+len(r.switches))
	row := func(n Node, nodeType string) {
		out = append(out, InventoryRow{n.RackID, n.NodeID, strings.ToLower(nodeType), n.BMCEndpoint, n.HostEndpoint})
	}
	for _, d := range r.devices {
		row(d.node(), d.NodeType())
	}
	for i, s := range r.switches {
		row(r.switchNode(s, i), s.NodeType())
	}
	return out
}

func (d *Device) node() Node {
	n := Node{
		NodeID: d.id, RackID: d.rack.opts.RackID, Type: d.NodeType(),
		BMCEndpoint: endpoint(d.IP(), d.mac, d.Port(), d.Username(), d.Password()),
	}
	if d.Model().DescriptorOnly() {
		n.Type, n.NodeDescriptor = "", &NodeDescriptor{Attributes: d.Model().Descriptor()}
	}
	if h := d.host; h != nil {
		host := endpoint(h.Address, "", h.Port, h.Username, h.Password)
		n.HostEndpoint = &host
	}
	return n
}

func endpoint(ip, mac string, port int, user, password string) Endpoint {
	return Endpoint{
		Interface: Interface{IPAddress: ip, MACAddress: mac}, Port: port,
		Credentials: Credentials{UserPass: UserPass{Username: user, Password: password}},
	}
}
