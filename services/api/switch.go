// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/credentials"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// bmcRule is what a BMC endpoint that cannot be used means for a switch, which is
// reached by its host endpoint.
type bmcRule bool

const (
	// bmcOptional drops it.
	bmcOptional bmcRule = false
	// bmcChecked refuses the switch: so do the operations on the fabric.
	bmcChecked bmcRule = true
)

// switchTarget validates a switch and returns its target. Errors are for the caller.
// Its addresses are judged for every operation, because the agents connect to them
// with the credentials of the request.
func (s *Server) switchTarget(b *targetBuilder, n *selected, rule bmcRule) (*rackbusv1.NodeTarget, error) {
	id := n.ref.NodeID
	if n.typ.Family != node.FamilySwitch {
		return nil, fmt.Errorf("node %s is not a switch (type=%s)", id, n.typ)
	}
	if err := checkIdentity(n.ref); err != nil {
		return nil, err
	}
	bmc, host := endpointRequest(n.info.GetBmcEndpoint()), endpointRequest(n.info.GetHostEndpoint())
	if err := checkTokens(n.typ, bmc, host); err != nil {
		return nil, err
	}
	if host == nil || host.Credentials.Empty() {
		return nil, fmt.Errorf("missing host credentials for switch %s", id)
	}
	t := &rackbusv1.NodeTarget{
		RackId: n.ref.RackID, NodeId: id, NodeType: n.typ.ID, InventoryProfile: n.profile.Name,
	}
	var err error
	if t.Host, err = b.endpoint(n, node.EndpointHost, host, forDeviceInfo); err == nil {
		err = s.opts.SwitchTargets.Check(t.GetHost().GetAddress())
	}
	if err != nil {
		return nil, fmt.Errorf("invalid host endpoint for switch %s: %w", id, err)
	}
	if bmc == nil {
		return t, nil
	}
	if t.Bmc, err = b.endpoint(n, node.EndpointBMC, bmc, forDeviceInfo); err == nil {
		err = s.opts.SwitchTargets.Check(t.GetBmc().GetAddress())
	}
	if err == nil {
		return t, nil
	}
	t.Bmc = nil
	if rule == bmcChecked {
		return nil, fmt.Errorf("invalid BMC endpoint for switch %s: %w", id, err)
	}
	s.log.Warn("BMC endpoint of a switch not used", "rack", n.ref.RackID, "node", id, "err", err)
	return t, nil
}

// switchJobs is one RPC that gives each of its switches a job.
type switchJobs struct {
	typ   job.Type
	nodes []selected
	bmc   bmcRule
	// noun is what the jobs do, poll the RPC that shows how they go.
	noun, poll string
	// listed says that the answer has a line for admitted switches too.
	listed bool
	// command puts into a command what the agent is asked to do.
	command func(cmd *rackbusv1.JobCommand)
	// secrets of the request, sealed for each job; nil without any.
	secrets proto.Message
}

func (b *switchJobs) nothing() string { return "No " + b.noun + " jobs created" }

func (b *switchJobs) parentFailed() string { return "failed to create parent " + b.noun + " job" }

// admitSwitches admits the batch. The parent's rack is that of the request. An error
// may be an *admission.Refusal of the whole batch.
func (s *Server) admitSwitches(ctx context.Context, b *switchJobs, areq admission.Request) (admission.Result, error) {
	areq.Type, areq.NothingAdmitted = b.typ, b.nothing()
	targets := s.newTargets()
	areq.Nodes = make([]admission.Node, len(b.nodes))
	for i := range b.nodes {
		areq.Nodes[i] = s.switchNode(b, targets, &b.nodes[i])
	}
	return s.admitBatch(ctx, areq)
}

func (s *Server) admitBatch(ctx context.Context, areq admission.Request) (admission.Result, error) {
	res, err := s.admitter.Admit(ctx, areq)
	if err == nil {
		s.metrics.batchAdmission(areq.Type, res)
	}
	return res, err
}

// switchNode validates one switch of a batch; a refusal concerns it only.
func (s *Server) switchNode(b *switchJobs, targets *targetBuilder, n *selected) admission.Node {
	target, err := s.switchTarget(targets, n, b.bmc)
	if err != nil {
		return refusedNode(n.ref, err)
	}
	op := &rackbusv1.JobCommand{}
	b.command(op)
	return admission.Node{Ref: n.ref, Family: node.FamilySwitch, Domain: operationDomain(op), Command: func(id job.ID) (*rackbusv1.JobCommand, error) {
		cmd := &rackbusv1.JobCommand{Target: proto.CloneOf(target)}
		b.command(cmd)
		if b.secrets == nil {
			return cmd, nil
		}
		session, err := targets.session(node.FamilySwitch)
		if err != nil {
			return nil, err
		}
		cmd.Secrets, err = credentials.SealSecrets(session, id.String(), b.secrets)
		return cmd, err
	}}
}

func refusedNode(ref node.Ref, err error) admission.Node {
	return admission.Node{Ref: ref, Refusal: &admission.Refusal{Code: job.FailureInvalidArgument, Message: err.Error()}}
}

// answer tells what became of the batch. The counts are those of the admission.
func (b *switchJobs) answer(res admission.Result) *rackmanager.NodeBatchResponse {
	var results []*rackmanager.NodeOperationResult
	for i := range res.Nodes {
		n := &res.Nodes[i]
		switch {
		case n.Refusal != nil:
			results = append(results, nodeResult(n.Ref.NodeID, n.Refusal))
		case b.listed:
			results = append(results, nodeResult(n.Ref.NodeID, nil))
		}
	}
	total, admitted := len(res.Nodes), res.Admitted()
	message := fmt.Sprintf("Created %d %s jobs out of %d nodes. Use %s with job_id to track overall batch status.",
		admitted, b.noun, total, b.poll)
	if admitted == 0 {
		message = b.nothing()
	}
	return &rackmanager.NodeBatchResponse{
		Status: statusOf(admitted == total && total > 0), Message: message, NodeResults: results,
		JobId: res.JobID.String(), Stats: stats(total, total-admitted),
	}
}

// refused is the answer to a batch that was refused as a whole, false when err is no
// such refusal.
func (b *switchJobs) refused(err error) (*rackmanager.NodeBatchResponse, bool) {
	return refusedAs(b.parentFailed(), err, len(b.nodes))
}

// eachAdmitted calls do for every node that was given a job.
func eachAdmitted(res admission.Result, do func(nodeID, jobID string)) {
	for i := range res.Nodes {
		if n := &res.Nodes[i]; n.Refusal == nil {
			do(n.Ref.NodeID, n.JobID.String())
		}
	}
}

// selectNode resolves the type of a single node.
func selectNode(info *rackmanager.NodeInfo) (selected, error) {
	nodes, err := selectNodes(&rackmanager.NodeSet{Nodes: []*rackmanager.NodeInfo{info}})
	if err != nil {
		return selected{}, err
	}
	return nodes[0], nil
}

// findSwitch returns a registered switch; refusal says why there is none.
func (m *rackManager) findSwitch(ctx context.Context, ref node.Ref) (target *rackbusv1.NodeTarget, refusal string, err error) {
	target, refusal, err = m.findNode(ctx, ref)
	if err != nil || refusal != "" {
		return nil, refusal, err
	}
	typ, ok := node.ByID(target.GetNodeType())
	switch {
	case !ok || typ.Family != node.FamilySwitch:
		return nil, fmt.Sprintf("node %s is not a switch (type=%s)", ref.NodeID, target.GetNodeType()), nil
	case target.GetHost() == nil:
		return nil, fmt.Sprintf("invalid host endpoint for switch %s: missing host endpoint", ref.NodeID), nil
	}
	return target, "", nil
}

// isRefusal returns the refusal of a whole request, false for a fault.
func isRefusal(err error) (*admission.Refusal, bool) {
	var refusal *admission.Refusal
	ok := errors.As(err, &refusal)
	return refusal, ok
}
