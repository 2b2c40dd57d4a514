// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Rack reads a registered rack; ErrNotFound when it was never created.
func (c *Conn) Rack(ctx context.Context, rackID string) (*rackbusv1.RackRecord, Revision, error) {
	v := &rackbusv1.RackRecord{}
	rev, err := c.getProto(ctx, streamInventory, inventoryRackSubject(rackID), v)
	return v, rev, err
}

// Node reads a registered node; ErrNotFound when there is none.
func (c *Conn) Node(ctx context.Context, ref node.Ref) (*rackbusv1.NodeRecord, Revision, error) {
	v := &rackbusv1.NodeRecord{}
	rev, err := c.getProto(ctx, streamInventory, inventoryNodeSubject(ref), v)
	return v, rev, err
}

// MaxAddNodes is how many nodes AddNodes registers in one step.
const MaxAddNodes = MaxTxMessages - 1

// AddNodes registers nodes of one rack together with the rack's new record, in
// one step: neither exists without the other. ErrConflict says that the rack or
// one of the nodes has changed since they were read.
func (c *Conn) AddNodes(ctx context.Context, rack *rackbusv1.RackRecord, rackRev Revision, nodes ...*rackbusv1.NodeRecord) error {
	writes := make([]inventoryWrite, 0, len(nodes)+1)
	writes = append(writes, inventoryWrite{inventoryRackSubject(rack.GetRackId()), rack, rackRev})
	for _, n := range nodes {
		ref := node.Ref{RackID: n.GetTarget().GetRackId(), NodeID: n.GetTarget().GetNodeId()}
		// A removed node leaves nothing behind, so a new one must be absent.
		writes = append(writes, inventoryWrite{inventoryNodeSubject(ref), n, Absent})
	}
	return c.putInventory(ctx, writes...)
}

// ReplaceNode replaces a node's record.
func (c *Conn) ReplaceNode(ctx context.Context, n *rackbusv1.NodeRecord, expect Revision) error {
	ref := node.Ref{RackID: n.GetTarget().GetRackId(), NodeID: n.GetTarget().GetNodeId()}
	_, err := c.putProto(ctx, inventoryNodeSubject(ref), n, &expect, 0)
	return err
}

// ReplaceRack replaces a rack's record.
func (c *Conn) ReplaceRack(ctx context.Context, v *rackbusv1.RackRecord, expect Revision) error {
	_, err := c.putProto(ctx, inventoryRackSubject(v.GetRackId()), v, &expect, 0)
	return err
}

// RemoveNode removes a node's record of the given revision. ErrNotFound says
// that it has changed or was removed already.
func (c *Conn) RemoveNode(ctx context.Context, rev Revision) error {
	return c.eraseMessage(ctx, streamInventory, rev)
}

type inventoryWrite struct {
	subject string
	value   proto.Message
	expect  Revision
}

func (c *Conn) putInventory(ctx context.Context, writes ...inventoryWrite) error {
	msgs := make([]*nats.Msg, len(writes))
	for i, w := range writes {
		data, err := proto.Marshal(w.value)
		if err != nil {
			return fmt.Errorf("encode %s: %w", w.subject, err)
		}
		msgs[i] = newMessage(w.subject, data)
		expecting(w.expect)(msgs[i])
	}
	_, err := c.commitBatch(ctx, streamInventory, msgs, len(msgs)-1)
	return err
}

// Racks returns every registered rack.
func (c *Conn) Racks(ctx context.Context) ([]*rackbusv1.RackRecord, error) {
	var out []*rackbusv1.RackRecord
	err := c.list(ctx, subjInvRackPrefix+">", func(data []byte) error {
		v := &rackbusv1.RackRecord{}
		out = append(out, v)
		return proto.Unmarshal(data, v)
	})
	return out, err
}

// Nodes returns every registered node, or those of one rack.
func (c *Conn) Nodes(ctx context.Context, rackID string) ([]*rackbusv1.NodeRecord, error) {
	filter := subjInvNodePrefix + ">"
	if rackID != "" {
		filter = subjInvNodePrefix + encodeToken(rackID) + ".>"
	}
	var out []*rackbusv1.NodeRecord
	err := c.list(ctx, filter, func(data []byte) error {
		v := &rackbusv1.NodeRecord{}
		out = append(out, v)
		return proto.Unmarshal(data, v)
	})
	return out, err
}

func (c *Conn) list(ctx context.Context, filter string, each func([]byte) error) error {
	err := c.replay(ctx, streamInventory, filter, jetstream.DeliverLastPerSubjectPolicy,
		func(m jetstream.Msg, _ *jetstream.MsgMetadata) (bool, error) {
			if m.Headers().Get(hdrMarker) != "" {
				return true, nil
			}
			if err := each(m.Data()); err != nil {
				return false, fmt.Errorf("decode %s: %w", m.Subject(), err)
			}
			return true, nil
		})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
