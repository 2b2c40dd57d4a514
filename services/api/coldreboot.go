// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/bus"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// maxColdReboot bounds what the waits of a request may add up to: what is kept of a
// job on the bus would not outlive more.
const maxColdReboot = 72 * time.Hour

// coldRebootSlack is what a sequence may take beyond its waits.
const coldRebootSlack = time.Hour

// helloWaits is how many times the back-off base a sequence waits at most for the
// switches: 1, 2, 4 and 8 times.
const helloWaits = 15

// ExecuteColdReboot admits the sequence that takes a rack down and up again, with
// all of its nodes reserved, or nothing.
func (m *rackManager) ExecuteColdReboot(ctx context.Context, req *rackmanager.ExecuteColdRebootRequest,
) (*rackmanager.ExecuteColdRebootResponse, error) {
	nodes := distinctNodes(req.GetNodes())
	if len(nodes) == 0 {
		return coldRebootRefused(nil, nil, "nodes is required and must contain at least one device"), nil
	}
	meta, idem, err := m.jobCall(ctx, "ExecuteColdReboot", req)
	if err != nil {
		return nil, err
	}
	if meta.onBusy != admission.OnBusyDefault && meta.onBusy != admission.OnBusyRefuse {
		return nil, errorf(CodeInvalidArgument, "%s: a cold reboot cannot wait for busy nodes; use %s", metaOnBusy, admission.OnBusyRefuse)
	}
	res, found, err := m.admitter.Lookup(ctx, idem, nil)
	if err == nil && !found {
		var refused *rackmanager.ExecuteColdRebootResponse
		if res, refused, err = m.admitColdReboot(ctx, req, meta, idem, nodes); refused != nil {
			return refused, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return &rackmanager.ExecuteColdRebootResponse{Response: &rackmanager.NodeBatchResponse{
		Status: statusOf(true), JobId: res.JobID.String(), Stats: stats(len(nodes), 0),
		Message: fmt.Sprintf("Cold reboot started for %d nodes. Use GetJobStatus with response.job_id to track per-stage progress.", len(nodes)),
	}}, nil
}

// admitColdReboot checks a request and admits its job. refused is the answer when
// that cannot be.
func (m *rackManager) admitColdReboot(ctx context.Context, req *rackmanager.ExecuteColdRebootRequest, meta jobMeta,
	idem admission.Idempotency, nodes []*rackmanager.NodeInfo,
) (res admission.Result, refused *rackmanager.ExecuteColdRebootResponse, err error) {
	plan, refused := m.planColdReboot(req, nodes)
	if refused != nil {
		return res, refused, nil
	}
	areq := meta.request(plan.own.RackID, idem)
	areq.Type, areq.OnBusy, areq.MinRun = job.TypeColdRebootSequence, admission.OnBusyRefuse, plan.minRun
	areq.Nodes = []admission.Node{{Ref: plan.own, Family: node.FamilyRack, Command: plan.command}}
	areq.Reserve = &admission.Reservation{Nodes: refsOfInfos(nodes), Operation: "cold reboot"}
	err = m.ride(ctx, func(ctx context.Context) error {
		_, _, err := m.opts.Conn.Rack(ctx, plan.own.RackID)
		areq.Reserve.RackPower = err == nil
		if errors.Is(err, bus.ErrNotFound) {
			return nil // a rack that is not registered has no guard
		}
		return err
	})
	if err != nil {
		return res, nil, err
	}
	res, err = m.admitter.AdmitCoordinator(ctx, areq)
	m.metrics.leafAdmission(job.TypeColdRebootSequence, err)
	var refusal *admission.Refusal
	if errors.As(err, &refusal) {
		return res, coldRebootRefused(nodes, nil, "%s", refusal.Message), nil
	}
	return res, nil, err
}

// coldRebootRefused refuses a sequence; results name the nodes that are to blame.
func coldRebootRefused(nodes []*rackmanager.NodeInfo, results []*rackmanager.NodeOperationResult, format string, args ...any,
) *rackmanager.ExecuteColdRebootResponse {
	resp := batchFailure(format, args...)
	resp.Stats, resp.NodeResults = stats(len(nodes), len(nodes)), results
	return &rackmanager.ExecuteColdRebootResponse{Response: resp}
}

// distinctNodes drops repetitions of nodes, and keeps the first.
func distinctNodes(set *rackmanager.NodeSet) []*rackmanager.NodeInfo {
	seen := make(map[node.Ref]bool)
	var out []*rackmanager.NodeInfo
	for _, info := range set.GetNodes() {
		ref := node.Ref{RackID: info.GetRackId(), NodeID: info.GetNodeId()}
		if !seen[ref] {
			seen[ref] = true
			out = append(out, info)
		}
	}
	return out
}

func refsOfInfos(nodes []*rackmanager.NodeInfo) []node.Ref {
	refs := make([]node.Ref, len(nodes))
	for i, info := range nodes {
		refs[i] = node.Ref{RackID: info.GetRackId(), NodeID: info.GetNodeId()}
	}
	return refs
}

// coldRebootPlan is a sequence that was checked.
type coldRebootPlan struct {
	// own is the node of the coordinator, of which a rack has one.
	own    node.Ref
	minRun time.Duration
	op     *rackbusv1.ColdReboot
}

// command is what the coordinator gets. The credentials in it are sealed for the
// agents, and only passed on.
func (p *coldRebootPlan) command(job.ID) (*rackbusv1.JobCommand, error) {
	return &rackbusv1.JobCommand{
		Target:    &rackbusv1.NodeTarget{RackId: p.own.RackID, NodeId: p.own.NodeID},
		Operation: &rackbusv1.JobCommand_ColdReboot{ColdReboot: proto.CloneOf(p.op)},
	}, nil
}

// planColdReboot checks a request, one rule after the other.
func (m *rackManager) planColdReboot(req *rackmanager.ExecuteColdRebootRequest, nodes []*rackmanager.NodeInfo,
) (*coldRebootPlan, *rackmanager.ExecuteColdRebootResponse) {
	racks := racksOf(nodes)
	if len(racks) > 1 {
		return nil, coldRebootRefused(nodes, nil, "cold reboot must target a single rack, but devices span %d racks: %s",
			len(racks), strings.Join(racks, ", "))
	}
	timing, longest := coldRebootTiming(req)
	if longest > maxColdReboot {
		return nil, coldRebootRefused(nodes, nil, "the waits of the request add up to %s, which is more than %s", longest, maxColdReboot)
	}
	targets, results := m.coldRebootTargets(nodes)
	if len(results) > 0 {
		return nil, coldRebootRefused(nodes, results, "one or more devices could not be prepared for cold reboot")
	}
	if role := missingRole(targets); role != "" {
		return nil, coldRebootRefused(nodes, nil, "cold reboot requires at least one %s in the device list", role)
	}
	return &coldRebootPlan{
		own: node.Ref{RackID: racks[0], NodeID: racks[0] + ":cold-reboot"}, minRun: longest + coldRebootSlack,
		op: &rackbusv1.ColdReboot{Nodes: targets, Timing: timing, Domain: strings.TrimSpace(req.GetDomain())},
	}, nil
}

func racksOf(nodes []*rackmanager.NodeInfo) []string {
	racks := make([]string, 0, 1)
	for _, info := range nodes {
		racks = append(racks, info.GetRackId())
	}
	slices.Sort(racks)
	return slices.Compact(racks)
}

// coldRebootTiming returns the waits that a request sets, and what they add up to
// at most.
func coldRebootTiming(req *rackmanager.ExecuteColdRebootRequest) (*rackbusv1.ColdRebootTiming, time.Duration) {
	t := &rackbusv1.ColdRebootTiming{
		PrestageShutdownFloor: req.GetPrestageShutdownFloorSeconds(), PrestageShutdownPollMax: req.GetPrestageShutdownPollMaxSeconds(),
		DischargeFloor: req.GetDischargeFloorSeconds(), DischargePollMax: req.GetDischargePollMaxSeconds(),
		BmcUpFloor: req.GetBmcUpFloorSeconds(), BmcUpPollMax: req.GetBmcUpPollMaxSeconds(),
		NvosHelloBackoff: req.GetNvosHelloBackoffSeconds(), ComputeBootWait: req.GetComputeBootWaitSeconds(),
		PollInterval: req.GetPollIntervalSeconds(),
	}
	// A shutdown whose answer is lost is watched for as long as its poll limit. In
	// seconds the sum cannot overflow.
	var seconds int64
	for _, s := range []uint32{
		t.GetPrestageShutdownFloor(), t.GetPrestageShutdownPollMax(), t.GetPrestageShutdownPollMax(), t.GetDischargeFloor(),
		t.GetDischargePollMax(), t.GetBmcUpFloor(), t.GetBmcUpPollMax(), t.GetComputeBootWait(), t.GetPollInterval(),
	} {
		seconds += int64(s)
	}
	seconds += helloWaits * int64(t.GetNvosHelloBackoff())
	// Beyond this a duration would overflow.
	return t, time.Duration(min(seconds, int64(10*maxColdReboot/time.Second))) * time.Second
}

// coldRebootTargets builds every node, and returns a line for each that cannot be.
func (m *rackManager) coldRebootTargets(nodes []*rackmanager.NodeInfo) ([]*rackbusv1.NodeTarget, []*rackmanager.NodeOperationResult) {
	var faults []*rackmanager.NodeOperationResult
	targets := make([]*rackbusv1.NodeTarget, len(nodes))
	builder := m.newTargets()
	for i, info := range nodes {
		var err error
		if targets[i], err = m.coldRebootTarget(builder, info); err != nil {
			faults = append(faults, nodeResult(info.GetNodeId(), err))
		}
	}
	return targets, faults
}

// coldRebootTarget builds one node. A switch needs its BMC, and its host endpoint
// for NVUE; of the others only the BMC is sent along. Errors are for the caller.
func (m *rackManager) coldRebootTarget(b *targetBuilder, info *rackmanager.NodeInfo) (*rackbusv1.NodeTarget, error) {
	r, err := node.Resolve(int32(info.GetType()), descriptorOf(info.GetNodeDescriptor()))
	if err != nil {
		return nil, fmt.Errorf("unknown or unsupported node type: %w", err)
	}
	n := &selected{
		info: info, ref: node.Ref{RackID: info.GetRackId(), NodeID: info.GetNodeId()}, typ: r.Type, profile: r.Profile,
	}
	t, err := b.build(n, forPower)
	if err != nil {
		return nil, err
	}
	t.InventoryProfile, t.Host = "", nil
	if n.typ.Family != node.FamilySwitch {
		return t, nil
	}
	in := endpointRequest(info.GetHostEndpoint())
	if in != nil && in.Credentials.Empty() {
		return nil, fmt.Errorf("Missing host credentials for node %s", n.ref.NodeID) //nolint:staticcheck // published text
	}
	if t.Host, err = b.endpoint(n, node.EndpointHost, in, forPower); err != nil {
		return nil, err
	}
	if err := m.opts.SwitchTargets.Check(t.GetHost().GetAddress()); err != nil {
		return nil, err
	}
	return t, nil
}

// missingRole names the first role of which there is no node, "" when there is one
// of each.
func missingRole(targets []*rackbusv1.NodeTarget) string {
	have := make(map[node.Family]bool)
	for _, t := range targets {
		typ, _ := node.ByID(t.GetNodeType())
		have[typ.Family] = true
	}
	for _, role := range []struct {
		family node.Family
		name   string
	}{{node.FamilyPowerShelf, "power shelf"}, {node.FamilyCompute, "compute node"}, {node.FamilySwitch, "switch"}} {
		if !have[role.family] {
			return role.name
		}
	}
	return ""
}
