// SPDX-License-Identifier: Apache-2.0

// Package credentials seals the login of a node's endpoint where it is taken
// in, and opens it where it is used. In between it is never readable.
package credentials

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// sealKind separates credentials from other sealed payloads.
const sealKind = "credentials"

// ErrNone says that an endpoint came without credentials.
var ErrNone = errors.New("the endpoint has no credentials")

// Seal seals the login of one endpoint of one node. It opens only for that node
// and endpoint, so it can be copied from the inventory into commands as it is.
func Seal(s *seal.Session, ref node.Ref, kind node.EndpointKind, c node.Credentials) (*rackbusv1.Sealed, error) {
	plain, err := proto.Marshal(&rackbusv1.DeviceCredentials{Username: c.User, Password: c.Password.Reveal()})
	if err != nil {
		return nil, fmt.Errorf("seal %s credentials of node %s: %w", kind, ref.NodeID, err)
	}
	defer clear(plain)
	box := s.Seal(aad(ref, kind), plain)
	return &rackbusv1.Sealed{KeyId: box.KeyID, Sender: box.Sender, Dek: box.DEK, Data: box.Data}, nil
}

// Open opens the login of one endpoint of a node. It wraps ErrNone when there is
// none, and the errors of seal when it does not open.
func Open(o *seal.Opener, target *rackbusv1.NodeTarget, kind node.EndpointKind) (node.Credentials, error) {
	endpoint := target.GetBmc()
	if kind == node.EndpointHost {
		endpoint = target.GetHost()
	}
	sealed := endpoint.GetCredentials()
	if sealed == nil {
		return node.Credentials{}, fmt.Errorf("%s endpoint of node %s: %w", kind, target.GetNodeId(), ErrNone)
	}
	ref := node.Ref{RackID: target.GetRackId(), NodeID: target.GetNodeId()}
	plain, err := o.Open(aad(ref, kind), seal.Box{
		KeyID: sealed.GetKeyId(), Sender: sealed.GetSender(), DEK: sealed.GetDek(), Data: sealed.GetData(),
	})
	if err != nil {
		return node.Credentials{}, fmt.Errorf("open %s credentials of node %s: %w", kind, ref.NodeID, err)
	}
	defer plain.Wipe()
	var c rackbusv1.DeviceCredentials
	if err := proto.Unmarshal(plain.Bytes(), &c); err != nil {
		// The decoder's error could show content.
		return node.Credentials{}, fmt.Errorf("open %s credentials of node %s: unreadable content", kind, ref.NodeID)
	}
	return node.Credentials{User: c.GetUsername(), Password: secret.New(c.GetPassword())}, nil
}

func aad(ref node.Ref, kind node.EndpointKind) []byte {
	return seal.AAD(sealKind, ref.RackID, ref.NodeID, string(kind))
}
