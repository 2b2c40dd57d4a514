// SPDX-License-Identifier: Apache-2.0

package api

import (
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// selected is one node of a request, with the type it resolves to.
type selected struct {
	info    *rackmanager.NodeInfo
	ref     node.Ref
	typ     node.Type
	profile node.Profile
}

// selectNodes resolves the type of every node of a request. One that cannot be
// resolved fails the whole request with INVALID_ARGUMENT.
func selectNodes(set *rackmanager.NodeSet) ([]selected, error) {
	nodes := make([]selected, 0, len(set.GetNodes()))
	for _, info := range set.GetNodes() {
		r, err := resolve(info.GetType(), info.GetNodeDescriptor())
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, selected{
			info: info, ref: node.Ref{RackID: info.GetRackId(), NodeID: info.GetNodeId()}, typ: r.Type, profile: r.Profile,
		})
	}
	return nodes, nil
}

// resolve finds the type that a number and a descriptor mean.
func resolve(t rackmanager.NodeType, d *rackmanager.NodeDescriptor) (node.Resolved, error) {
	r, err := node.Resolve(int32(t), descriptorOf(d))
	if err != nil {
		return node.Resolved{}, &Error{CodeInvalidArgument, err.Error(), nil}
	}
	return r, nil
}

func descriptorOf(d *rackmanager.NodeDescriptor) *node.Descriptor {
	if d == nil {
		return nil
	}
	return &node.Descriptor{Attributes: d.GetAttributes()}
}

// endpointRequest returns the endpoint as it was sent, nil when it was not.
func endpointRequest(e *rackmanager.Endpoint) *node.EndpointRequest {
	if e == nil {
		return nil
	}
	r := &node.EndpointRequest{
		Address: e.GetInterface().GetIpAddress(), MAC: e.GetInterface().GetMacAddress(),
		HostName: e.GetInterface().GetHostName(), Port: e.GetPort(),
	}
	switch auth := e.GetCredentials().GetAuth().(type) {
	case *rackmanager.Credentials_UserPass:
		r.Credentials = node.Credentials{User: auth.UserPass.GetUsername(), Password: secret.New(auth.UserPass.GetPassword())}
	case *rackmanager.Credentials_SessionToken:
		r.SessionToken = true
	}
	return r
}

// refsOf returns the identities of the nodes, in order.
func refsOf(nodes []selected) []node.Ref {
	refs := make([]node.Ref, len(nodes))
	for i := range nodes {
		refs[i] = nodes[i].ref
	}
	return refs
}
