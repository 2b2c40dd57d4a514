// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"slices"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// textNothingToExamine is the reason of a batch without any job.
const textNothingToExamine = "no node could be examined"

// StartNodeDiagnostics starts one job per node, under a parent. The nodes have to be
// registered: those that only a request described are not known any more.
func (j *jobsService) StartNodeDiagnostics(ctx context.Context, req *rackbusv1.StartNodeDiagnosticsRequest,
) (*rackbusv1.StartNodeDiagnosticsResponse, error) {
	rm := &rackManager{Server: j.Server}
	meta, idem, err := rm.jobCall(ctx, "StartNodeDiagnostics", req)
	if err != nil {
		return nil, err
	}
	if res, found, err := j.admitter.Lookup(ctx, idem, nil); err != nil || found {
		return diagnosticsStarted(res), err
	}
	about, err := j.aboutJob(ctx, req.GetAboutJobId())
	if err != nil {
		return nil, err
	}
	patients, err := j.patients(ctx, req.GetNodes(), about)
	if err != nil {
		return nil, err
	}
	areq := admission.Request{
		Type: job.TypeNodeDiagnostics, Name: meta.name, RackID: sameRack(patients), OnBusy: meta.onBusy, Deadline: meta.deadline,
		Idempotency: idem, NothingAdmitted: textNothingToExamine, About: about.ID,
	}
	if areq.Nodes, err = j.diagnosesFor(ctx, rm, patients); err != nil {
		return nil, err
	}
	res, err := j.admitter.Admit(ctx, areq)
	if err != nil {
		return nil, refusedCall(err)
	}
	j.metrics.batchAdmission(job.TypeNodeDiagnostics, res)
	return diagnosticsStarted(res), nil
}

func diagnosticsStarted(res admission.Result) *rackbusv1.StartNodeDiagnosticsResponse {
	resp := &rackbusv1.StartNodeDiagnosticsResponse{JobId: res.JobID.String()}
	for i := range res.Nodes {
		n := &res.Nodes[i]
		if n.Refusal != nil {
			resp.RefusedNodes = append(resp.RefusedNodes, &rackbusv1.RefusedNode{
				RackId: n.Ref.RackID, NodeId: n.Ref.NodeID, Message: n.Refusal.Message, Index: uint32(i),
			})
		}
	}
	return resp
}

// patient is a node to be examined, and the job that did something to it.
type patient struct {
	ref   node.Ref
	about job.ID
}

func sameRack(patients []patient) string {
	rack := patients[0].ref.RackID
	if slices.ContainsFunc(patients, func(p patient) bool { return p.ref.RackID != rack }) {
		return ""
	}
	return rack
}

// aboutJob reads the job that is to be looked into; the zero record when none is.
func (j *jobsService) aboutJob(ctx context.Context, id string) (job.Record, error) {
	if id == "" {
		return job.Record{}, nil
	}
	r, _, err := j.require(ctx, id)
	if err != nil {
		return job.Record{}, err
	}
	if r.Type == job.TypeNodeDiagnostics {
		return job.Record{}, errorf(CodeInvalidArgument, "job %s is a diagnosis itself", r.ID)
	}
	return r, nil
}

// patients returns the nodes to be examined in a stable order, each once.
func (j *jobsService) patients(ctx context.Context, named []*rackbusv1.DiagnosedNode, about job.Record) ([]patient, error) {
	touched, err := j.touchedBy(ctx, about)
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		switch {
		case !about.Exists():
			return nil, errorf(CodeInvalidArgument, "name nodes, or a job to look into")
		case about.Kind == job.KindParent && !about.State.Terminal() && len(touched) == 0:
			return nil, errorf(CodeFailedPrecondition, "no child of job %s has failed so far", about.ID)
		case len(touched) == 0:
			return nil, errorf(CodeFailedPrecondition, "job %s has no node to examine: none was accepted, or all completed", about.ID)
		}
		return touched, nil
	}
	var out []patient
	seen := map[node.Ref]bool{}
	for _, n := range named {
		p := patient{ref: node.Ref{RackID: n.GetRackId(), NodeID: n.GetNodeId()}, about: about.ID}
		if err := checkIdentity(p.ref); err != nil {
			return nil, errorf(CodeInvalidArgument, "%v", err)
		}
		if i := slices.IndexFunc(touched, func(t patient) bool { return t.ref == p.ref }); i >= 0 {
			p.about = touched[i].about
		}
		if !seen[p.ref] {
			out = append(out, p)
		}
		seen[p.ref] = true
	}
	return out, nil
}

// touchedBy returns the nodes of a job: for a parent those of its children that
// have ended without completing.
func (j *jobsService) touchedBy(ctx context.Context, about job.Record) ([]patient, error) {
	switch about.Kind {
	case job.KindLeaf:
		return []patient{{node.Ref{RackID: about.RackID, NodeID: about.NodeID}, about.ID}}, nil
	case job.KindCoordinator:
		out := make([]patient, len(about.Reserved))
		for i, id := range about.Reserved {
			out[i] = patient{node.Ref{RackID: about.RackID, NodeID: id}, about.ID}
		}
		return out, nil
	case job.KindParent:
	default:
		return nil, nil
	}
	_, rev, err := j.readJob(ctx, about.ID.String())
	if err != nil {
		return nil, noJob(err, about.ID.String())
	}
	children, err := j.readAll(ctx, childIDs(&about), rev)
	if err != nil {
		return nil, noJob(err, about.ID.String())
	}
	var out []patient
	for i := range children {
		c := &children[i]
		if c.State.Terminal() && c.State != job.StateCompleted {
			out = append(out, patient{node.Ref{RackID: c.RackID, NodeID: c.NodeID}, c.ID})
		}
	}
	return out, nil
}

// diagnosesFor asks for the diagnoses of all nodes.
func (j *jobsService) diagnosesFor(ctx context.Context, rm *rackManager, patients []patient) ([]admission.Node, error) {
	refs := make([]node.Ref, len(patients))
	for i := range patients {
		refs[i] = patients[i].ref
	}
	nodes, errs := make([]admission.Node, len(patients)), make([]error, len(patients))
	eachNode(refs, j.opts.BatchParallelism, func(i int) {
		nodes[i], errs[i] = j.diagnosisOf(ctx, rm, &patients[i])
	})
	return nodes, errors.Join(errs...)
}

// diagnosisOf asks for the diagnosis of one node, with the history of the job that
// is looked into.
func (j *jobsService) diagnosisOf(ctx context.Context, rm *rackManager, p *patient) (admission.Node, error) {
	target, refusal, err := rm.findNode(ctx, p.ref)
	if err != nil {
		return admission.Node{}, err
	}
	if refusal != "" {
		return admission.Node{Ref: p.ref, About: p.about, Refusal: &admission.Refusal{
			Code: job.FailureTargetNotFound, Message: refusal + " (only registered nodes can be examined)",
		}}, nil
	}
	var history diagnostics.History
	if !p.about.IsZero() {
		err = j.ride(ctx, func(ctx context.Context) (err error) {
			history, err = diagnostics.ReadHistory(ctx, j.opts.Conn, p.about)
			return err
		})
		if err != nil && !errors.Is(err, bus.ErrNotFound) {
			return admission.Node{}, err
		}
	}
	return diagnostics.AdmissionNode(target, p.about, history), nil
}
