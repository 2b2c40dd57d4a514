// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// ReadEvents is how many events of a job are read for its history, of which the
// newest are kept. A job that polls its device for half a day has some 9,000.
const ReadEvents = 20_000

// AdmissionNode asks for the diagnosis of a registered node. The job that it looks
// into may be the zero id; events are its history.
func AdmissionNode(target *rackbusv1.NodeTarget, about job.ID, events []bus.StoredEvent) admission.Node {
	n := admission.Node{Ref: node.Ref{RackID: target.GetRackId(), NodeID: target.GetNodeId()}, About: about}
	typ, ok := node.ByID(target.GetNodeType())
	if !ok {
		n.Refusal = &admission.Refusal{
			Code: job.FailureInvalidArgument, Message: "node type " + target.GetNodeType() + " is not known to this version",
		}
		return n
	}
	n.Family = typ.Family
	order := Order(about, events)
	n.Command = func(job.ID) (*rackbusv1.JobCommand, error) {
		return &rackbusv1.JobCommand{
			Target:    proto.CloneOf(target),
			Operation: &rackbusv1.JobCommand_NodeDiagnosis{NodeDiagnosis: order},
		}, nil
	}
	return n
}
