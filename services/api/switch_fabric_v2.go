// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

const (
	// fabricFile and topologyKey are where a fabric manager keeps its topology.
	fabricFile  = "fm_config"
	topologyKey = "MNNVL_TOPOLOGY"
	// fabricAttribute begins descriptor attributes that are entries of fabricFile for
	// the primary switch.
	fabricAttribute = "fm_config:"
	// unknownTopology is what a fabric manager reports that has none.
	unknownTopology = "unknown"
)

// ConfigureScaleUpFabricManager admits the job that brings a whole fabric to a wanted
// configuration, with all of its switches reserved, or nothing.
func (m *rackManagerV2) ConfigureScaleUpFabricManager(ctx context.Context, req *rackmanagerv2.ConfigureScaleUpFabricManagerRequest,
) (*rackmanagerv2.ConfigureScaleUpFabricManagerResponse, error) {
	nodes, attributes, err := selectFabric(req.GetNodes())
	if err != nil {
		return nil, err
	}
	rm := &rackManager{Server: m.Server}
	meta, idem, err := rm.jobCall(ctx, "v2.ConfigureScaleUpFabricManager", req)
	if err != nil {
		return nil, err
	}
	if meta.onBusy != admission.OnBusyDefault && meta.onBusy != admission.OnBusyRefuse {
		return nil, errorf(CodeInvalidArgument, "%s: a fabric configuration cannot wait for busy switches; use %s", metaOnBusy, admission.OnBusyRefuse)
	}
	res, found, err := m.admitter.Lookup(ctx, idem, nil)
	if err == nil && !found {
		res, err = m.admitFabric(ctx, req, meta.request("", idem), nodes, attributes)
	}
	if err != nil {
		return nil, err
	}
	return &rackmanagerv2.ConfigureScaleUpFabricManagerResponse{JobId: res.JobID.String()}, nil
}

// selectFabric resolves the switches of a request. Attributes of descriptors that are
// entries for the fabric manager are set aside; they are no part of a node's type.
func selectFabric(set *rackmanager.NodeSet) ([]selected, []map[string]string, error) {
	clean := &rackmanager.NodeSet{}
	attributes := make([]map[string]string, len(set.GetNodes()))
	for i, info := range set.GetNodes() {
		attributes[i] = make(map[string]string)
		info = proto.CloneOf(info)
		for name, value := range info.GetNodeDescriptor().GetAttributes() {
			if key, ok := strings.CutPrefix(name, fabricAttribute); ok {
				attributes[i][strings.TrimSpace(key)] = strings.TrimSpace(value)
				delete(info.GetNodeDescriptor().GetAttributes(), name)
			}
		}
		clean.Nodes = append(clean.Nodes, info)
	}
	nodes, err := selectNodes(clean)
	for i := range nodes {
		nodes[i].ref.NodeID = strings.TrimSpace(nodes[i].ref.NodeID)
		nodes[i].ref.RackID = strings.TrimSpace(nodes[i].ref.RackID)
	}
	return nodes, attributes, err
}

// admitFabric checks a request, one rule after the other, and admits its job.
func (m *rackManagerV2) admitFabric(ctx context.Context, req *rackmanagerv2.ConfigureScaleUpFabricManagerRequest, areq admission.Request,
	nodes []selected, attributes []map[string]string,
) (admission.Result, error) {
	var res admission.Result
	op, err := fabricConfig(req, len(nodes))
	if err != nil {
		return res, err
	}
	if op.Switches, err = m.fabricSwitches(nodes, attributes, op.GetDomain()); err != nil {
		return res, err
	}
	primary, err := m.primarySwitch(ctx, strings.TrimSpace(req.GetPrimarySwitchNodeId()), op)
	if err != nil {
		return res, err
	}
	chosen := op.GetSwitches()[primary]
	op.PrimaryNodeId = chosen.GetTarget().GetNodeId()
	if err := checkEntries(slices.Concat(op.GetExtras(), fabricEntries(chosen.GetFmConfig()))); err != nil {
		return res, err
	}
	areq.Type, areq.RackID, areq.OnBusy = job.TypeConfigureScaleUpFabricManager2, nodes[primary].ref.RackID, admission.OnBusyRefuse
	areq.Reserve = &admission.Reservation{Operation: "scale-up fabric configuration"}
	for i := range nodes {
		if i != primary {
			areq.Reserve.Nodes = append(areq.Reserve.Nodes, nodes[i].ref)
		}
	}
	areq.Nodes = []admission.Node{{
		Ref: nodes[primary].ref, Family: node.FamilySwitch, Command: func(job.ID) (*rackbusv1.JobCommand, error) {
			return &rackbusv1.JobCommand{
				Target:    proto.CloneOf(chosen.GetTarget()),
				Operation: &rackbusv1.JobCommand_FabricReconcile{FabricReconcile: proto.CloneOf(op)},
			}, nil
		},
	}}
	res, err = m.admitter.AdmitCoordinator(ctx, areq)
	m.metrics.leafAdmission(areq.Type, err)
	if refusal, ok := isRefusal(err); ok {
		code := CodeInternal
		if refusal.Code == job.FailureNodeBusy {
			code = CodeFailedPrecondition
		}
		return res, &Error{code, refusal.Message, refusal}
	}
	return res, err
}

// fabricConfig reads the wanted configuration.
func fabricConfig(req *rackmanagerv2.ConfigureScaleUpFabricManagerRequest, switches int) (*rackbusv1.FabricReconcile, error) {
	topology := strings.TrimSpace(req.GetConfig().GetTopologyType())
	switch {
	case switches == 0:
		return nil, errorf(CodeInvalidArgument, textNoNodes)
	case req.GetConfig() == nil:
		return nil, errorf(CodeInvalidArgument, "config is required")
	case topology == "":
		return nil, errorf(CodeInvalidArgument, "config.topology_type is required")
	case strings.EqualFold(topology, unknownTopology):
		return nil, errorf(CodeInvalidArgument, "config.topology_type %q is no topology that can be wanted", topology)
	}
	op := &rackbusv1.FabricReconcile{Topology: topology, Domain: strings.TrimSpace(req.GetDomain())}
	for _, e := range req.GetConfig().GetExtraStaticConfigs() {
		op.Extras = append(op.Extras, &rackbusv1.FabricEntry{
			File: strings.TrimSpace(e.GetConfigFileName()), Key: strings.TrimSpace(e.GetKey()), Value: strings.TrimSpace(e.GetValue()),
		})
	}
	return op, checkEntries(op.GetExtras())
}

// fabricEntries are the entries of a descriptor in the order of their keys.
func fabricEntries(attributes map[string]string) []*rackbusv1.FabricEntry {
	var out []*rackbusv1.FabricEntry
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		out = append(out, &rackbusv1.FabricEntry{File: fabricFile, Key: key, Value: attributes[key]})
	}
	return out
}

// checkEntries refuses entries without a place, for the topology, or for the same
// place.
func checkEntries(entries []*rackbusv1.FabricEntry) error {
	type place struct{ file, key string }
	seen := make(map[place]bool, len(entries))
	for i, e := range entries {
		at := place{e.GetFile(), e.GetKey()}
		switch {
		case at.file == "":
			return errorf(CodeInvalidArgument, "entry %d of extra_static_configs has no config_file_name", i+1)
		case at.key == "":
			return errorf(CodeInvalidArgument, "entry %d of extra_static_configs has no key", i+1)
		case at == place{fabricFile, topologyKey}:
			return errorf(CodeInvalidArgument, "%s in %s is set by topology_type and cannot be an extra", at.key, at.file)
		case seen[at]:
			return errorf(CodeInvalidArgument, "%s in %s is given more than once", at.key, at.file)
		}
		seen[at] = true
	}
	return nil
}

// fabricSwitches validates the switches of a fabric.
func (s *Server) fabricSwitches(nodes []selected, attributes []map[string]string, domain string) ([]*rackbusv1.FabricSwitch, error) {
	seen := make(map[string]bool, len(nodes))
	for i := range nodes {
		id := nodes[i].ref.NodeID
		if seen[id] {
			return nil, errorf(CodeInvalidArgument, "node_id %s is given more than once", id)
		}
		seen[id] = true
	}
	out := make([]*rackbusv1.FabricSwitch, len(nodes))
	targets := s.newTargets()
	for i := range nodes {
		target, err := s.switchTarget(targets, &nodes[i], bmcChecked)
		if err != nil {
			return nil, &Error{CodeInvalidArgument, err.Error(), err}
		}
		secondary, err := secondaryAddress(&nodes[i])
		if err != nil {
			return nil, &Error{CodeInvalidArgument, err.Error(), err}
		}
		out[i] = &rackbusv1.FabricSwitch{Target: target, SecondaryAddress: secondary, FmConfig: attributes[i]}
	}
	if !s.opts.SwitchTLS.Insecure() {
		if _, err := s.opts.SwitchTLS.Client(domain); err != nil {
			return nil, &Error{CodeInvalidArgument, err.Error(), err}
		}
	}
	addresses := make(map[netip.Addr]string, len(nodes))
	for i := range nodes {
		id, address := nodes[i].ref.NodeID, canonical(out[i].GetTarget().GetHost().GetAddress())
		if other, taken := addresses[address]; taken {
			return nil, errorf(CodeInvalidArgument, "switches %s and %s have the same host address %s", other, id, address)
		}
		addresses[address] = id
		if nodes[i].ref.RackID != nodes[0].ref.RackID {
			return nil, errorf(CodeInvalidArgument, "the switches of a fabric must be of one rack, but %s is of %s and %s of %s",
				nodes[0].ref.NodeID, nodes[0].ref.RackID, id, nodes[i].ref.RackID)
		}
	}
	return out, nil
}

// familyVR is the product family whose switches are told the addresses of all others.
const familyVR = "vrnvl72"

// secondaryAddress is the address of the first further host endpoint, "" without one.
// Only VR NVL72 uses it.
func secondaryAddress(n *selected) (string, error) {
	more := n.info.GetAdditionalHostEndpoints()
	if len(more) == 0 || n.typ.ProductFamily != familyVR {
		return "", nil
	}
	address := strings.TrimSpace(more[0].GetInterface().GetIpAddress())
	if _, err := netip.ParseAddr(strings.Trim(address, "[]")); err != nil {
		return "", fmt.Errorf("the first of additional_host_endpoints of switch %s has no valid IP address: %q", n.ref.NodeID, address)
	}
	return strings.Trim(address, "[]"), nil
}

// canonical is an address that was validated, in its one form.
func canonical(address string) netip.Addr {
	addr, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return addr.Unmap()
}

var errTray = errors.New("tray index unreadable")

// primarySwitch chooses which switch is to run the fabric manager: the one that is
// asked for, else the only one, else the one lowest in the rack.
func (s *Server) primarySwitch(ctx context.Context, asked string, op *rackbusv1.FabricReconcile) (int, error) {
	switches := op.GetSwitches()
	if asked != "" {
		at := slices.IndexFunc(switches, func(f *rackbusv1.FabricSwitch) bool { return f.GetTarget().GetNodeId() == asked })
		if at < 0 {
			return 0, errorf(CodeInvalidArgument, "primary_switch_node_id %s is none of the nodes", asked)
		}
		return at, nil
	}
	if len(switches) == 1 {
		return 0, nil
	}
	trays := make([]uint32, len(switches))
	errs := make([]error, len(switches))
	refs := make([]node.Ref, len(switches))
	for i, f := range switches {
		refs[i] = node.Ref{RackID: f.GetTarget().GetRackId(), NodeID: f.GetTarget().GetNodeId()}
	}
	eachNode(refs, s.opts.BatchParallelism, func(i int) {
		out := s.askSwitch(ctx, s.opts.Timing.DeviceInfoLimitSwitch, query{op: opDeviceInfo, target: switches[i].GetTarget(), domain: op.GetDomain()})
		info := out.reply.GetDeviceInfo()
		switch {
		case out.err != nil:
			errs[i] = out.err
		case info == nil || info.TrayIndex == nil:
			errs[i] = errTray
		default:
			trays[i] = info.GetTrayIndex()
		}
	})
	best := 0
	for i, err := range errs {
		if err != nil {
			return 0, &Error{CodeFailedPrecondition, fmt.Sprintf("the tray index of switch %s could not be read, so that no primary can be chosen; "+
				"name one in primary_switch_node_id: %v", refs[i].NodeID, err), err}
		}
		if cmp.Or(cmp.Compare(trays[i], trays[best]), cmp.Compare(refs[i].NodeID, refs[best].NodeID)) < 0 {
			best = i
		}
	}
	return best, nil
}
