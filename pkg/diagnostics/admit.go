// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Bounds of what is read of a job's history, of which MaxHistory travels in the command.
// A job that polls its device for half a day has some 9,000 events, and hundreds of
// jobs may fail in the same moment.
const (
	historyEvents = 1_000
	historyBytes  = 1 << 20
)

// History is the newest part of a job's history, oldest first.
type History struct {
	Events []bus.StoredEvent
	// Omitted is how many older events there are.
	Omitted int
}

// ReadHistory reads the history of a job that is to be looked into.
func ReadHistory(ctx context.Context, conn *bus.Conn, id job.ID) (History, error) {
	events, omitted, err := conn.NewestJobEvents(ctx, id, 0, historyEvents, historyBytes)
	return History{events, omitted}, err
}

// AdmissionNode asks for the diagnosis of a registered node. The job that it looks
// into may be the zero id.
func AdmissionNode(target *rackbusv1.NodeTarget, about job.ID, history History) admission.Node {
	n := admission.Node{Ref: node.Ref{RackID: target.GetRackId(), NodeID: target.GetNodeId()}, About: about}
	typ, ok := node.ByID(target.GetNodeType())
	if !ok {
		n.Refusal = &admission.Refusal{
			Code: job.FailureInvalidArgument, Message: "node type " + target.GetNodeType() + " is not known to this version",
		}
		return n
	}
	n.Family = typ.Family
	order := Order(about, history)
	n.Command = func(job.ID) (*rackbusv1.JobCommand, error) {
		return &rackbusv1.JobCommand{
			Target:    proto.CloneOf(target),
			Operation: &rackbusv1.JobCommand_NodeDiagnosis{NodeDiagnosis: order},
		}, nil
	}
	return n
}
