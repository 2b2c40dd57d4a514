// SPDX-License-Identifier: Apache-2.0

package sim

// NodeSet is the rack as the rack manager's NodeSet message in its JSON form.
type NodeSet struct {
	Nodes []Node `json:"nodes"`
}

// Node is a NodeInfo.
type Node struct {
	NodeID      string   `json:"nodeId"`
	RackID      string   `json:"rackId"`
	Type        string   `json:"type"`
	BMCEndpoint Endpoint `json:"bmcEndpoint"`
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
	MACAddress string `json:"macAddress"`
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
	out := NodeSet{Nodes: make([]Node, 0, len(r.devices))}
	for _, d := range r.devices {
		out.Nodes = append(out.Nodes, Node{
			NodeID: d.id, RackID: r.opts.RackID, Type: d.NodeType(),
			BMCEndpoint: Endpoint{
				Interface:   Interface{IPAddress: d.IP(), MACAddress: d.mac},
				Port:        d.Port(),
				Credentials: Credentials{UserPass: UserPass{Username: r.opts.Username, Password: r.opts.Password}},
			},
		})
	}
	return out
}
