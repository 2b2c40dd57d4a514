// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/access"
	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/telemetry"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// Bounds of a record.
const (
	maxAuditNodes     = 100
	maxAuditMessage   = 1024
	maxAuditAttribute = 200
	maxAuditBeside    = 100
)

// besideJobs is the attribute with the jobs on whose nodes a caller has acted by
// force.
const besideJobs = "beside_jobs"

// outcomeFailure is the outcome of a call whose answer says that it failed.
const outcomeFailure = "FAILURE"

// codeNames are the names of the gRPC codes as its documentation writes them.
var codeNames = [...]string{
	"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
	"DATA_LOSS", "UNAUTHENTICATED",
}

// codeName returns the name of a gRPC code.
func codeName(c codes.Code) string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "CODE_" + strconv.Itoa(int(c))
}

// textAttributes are the members of requests whose text may be kept: names of
// things, and what people say. Everything else that is text is left out, since it
// may be a secret; so are files and manifests.
var textAttributes = map[protoreflect.Name]bool{
	"filename": true, "image_filename": true, "target": true, "components": true,
	"id": true, "object_id": true, "snapshot_id": true, "about_job_id": true,
	"firmware_type": true, "software_type": true, "hardware_type": true, "topology_type": true,
	"primary_switch_node_id": true, "domain": true, "reason": true,
}

// auditRecord describes a call.
func auditRecord(ctx context.Context, e ended) *rackbusv1.AuditRecord {
	p, _ := access.FromContext(ctx)
	now := time.Now()
	r := &rackbusv1.AuditRecord{
		V: 1, At: timestamppb.New(now), Identity: p.Identity, Role: rackbusv1.Role(p.Role), Peer: p.Peer, Rpc: e.method,
		Outcome: codeName(status.Code(e.err)), Duration: durationpb.New(now.Sub(e.start)), Attributes: map[string]string{},
	}
	req, resp := asMessage(e.req), asMessage(e.resp)
	reason, beside := notesOf(ctx)
	if req != nil {
		nodes := namedNodes(req, resp)
		r.Nodes, r.NodeCount = nodes.first, uint32(len(nodes.seen))
		attributes(req.ProtoReflect(), r.Attributes)
		r.JobId = jobNamed(req, resp)
	}
	switch failed, message := failedInBand(resp); {
	case e.err != nil:
		r.Message = status.Convert(e.err).Message()
	case failed:
		r.Outcome, r.Message = outcomeFailure, message
		if message == "" {
			r.Message = reason
		}
	}
	r.Message = printable(r.Message, maxAuditMessage)
	if len(beside) > 0 {
		ids := make([]string, 0, maxAuditBeside)
		for _, id := range beside[:min(len(beside), maxAuditBeside)] {
			ids = append(ids, id.String())
		}
		r.Attributes[besideJobs] = strings.Join(ids, ",")
		r.JobId = ids[0]
	}
	metadataAttributes(ctx, r.Attributes)
	return r
}

// metadataAttributes adds what metadata asked for.
func metadataAttributes(ctx context.Context, to map[string]string) {
	md, _ := metadata.FromIncomingContext(ctx)
	if policy := first(md, metaOnBusy); policy != "" {
		if _, known := admission.ParseOnBusy(policy); !known && policy != onBusyForce {
			policy = "unknown"
		}
		to["on_busy"] = policy
	}
	for key, name := range map[string]string{metaJobName: "job_name", metaDeadline: "deadline", metaRollout: "rollout"} {
		if value := first(md, key); value != "" {
			to[name] = printable(value, maxAuditAttribute)
		}
	}
}

// attributes adds the members of a request that say what it asks for: enums and
// switches, which hold no secrets, and the listed texts.
func attributes(m protoreflect.Message, to map[string]string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.IsMap() || f.Message() != nil {
			return true
		}
		var parts []string
		for _, one := range each(f, v) {
			switch f.Kind() {
			case protoreflect.EnumKind:
				parts = append(parts, enumName(f.Enum(), one.Enum()))
			case protoreflect.BoolKind:
				parts = append(parts, strconv.FormatBool(one.Bool()))
			case protoreflect.StringKind:
				if textAttributes[f.Name()] {
					parts = append(parts, one.String())
				}
			default:
			}
		}
		if len(parts) > 0 {
			to[string(f.Name())] = printable(strings.Join(parts, ","), maxAuditAttribute)
		}
		return true
	})
}

// each returns the values of a member that is no map.
func each(f protoreflect.FieldDescriptor, v protoreflect.Value) []protoreflect.Value {
	if !f.IsList() {
		return []protoreflect.Value{v}
	}
	out := make([]protoreflect.Value, v.List().Len())
	for i := range out {
		out[i] = v.List().Get(i)
	}
	return out
}

func enumName(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	if v := e.Values().ByNumber(n); v != nil {
		return string(v.Name())
	}
	return strconv.Itoa(int(n))
}

// nodeList collects the nodes that a message names, each once.
type nodeList struct {
	seen  map[node.Ref]struct{}
	first []*rackbusv1.AuditedNode
}

// namedNodes returns the nodes of a request, else its rack, else what the answer
// is about.
func namedNodes(req, resp proto.Message) *nodeList {
	l := &nodeList{seen: make(map[node.Ref]struct{})}
	l.walk(req.ProtoReflect(), "", true)
	if rack := text(req.ProtoReflect(), "rack_id"); len(l.seen) == 0 && rack != "" {
		l.add(node.Ref{RackID: rack})
	}
	if len(l.seen) == 0 && resp != nil {
		l.walk(resp.ProtoReflect(), "", false)
	}
	return l
}

func (l *nodeList) add(ref node.Ref) {
	if _, known := l.seen[ref]; known {
		return
	}
	l.seen[ref] = struct{}{}
	if len(l.first) < maxAuditNodes {
		l.first = append(l.first, &rackbusv1.AuditedNode{
			RackId: printable(ref.RackID, maxAuditAttribute), NodeId: printable(ref.NodeID, maxAuditAttribute),
		})
	}
}

// walk looks for nodes in a message and all below it. A node without a rack is one
// of the rack that was named above it.
func (l *nodeList) walk(m protoreflect.Message, rack string, lists bool) {
	if own := text(m, "rack_id"); own != "" {
		rack = own
	}
	if id := text(m, "node_id"); id != "" {
		l.add(node.Ref{RackID: rack, NodeID: id})
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			if lists && f.MapValue().Message() != nil {
				v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					l.walk(v.Message(), rack, lists)
					return true
				})
			}
		case f.Message() == nil || f.IsList() && !lists:
		default:
			for _, one := range each(f, v) {
				l.walk(one.Message(), rack, lists)
			}
		}
		return true
	})
}

// jobNamed returns the job that an answer names, else the request.
func jobNamed(req, resp proto.Message) string {
	if resp != nil {
		if id := jobIn(resp.ProtoReflect()); id != "" {
			return id
		}
	}
	if id := jobIn(req.ProtoReflect()); id != "" {
		return id
	}
	return printable(text(req.ProtoReflect(), "about_job_id"), maxAuditAttribute)
}

// jobIn looks for a job in a message and in the single messages right below it.
func jobIn(m protoreflect.Message) string {
	id := text(m, "job_id")
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if id == "" && f.Message() != nil && !f.IsList() && !f.IsMap() {
			id = text(v.Message(), "job_id")
		}
		return id == ""
	})
	return printable(id, maxAuditAttribute)
}

// failedInBand tells whether an answer says that the call failed, and why.
func failedInBand(resp proto.Message) (failed bool, message string) {
	if resp == nil {
		return false, ""
	}
	m := resp.ProtoReflect()
	if f := m.Descriptor().Fields().ByName("response"); f != nil && f.Message() != nil && !f.IsList() {
		m = m.Get(f).Message()
	}
	f := m.Descriptor().Fields().ByName("status")
	if f == nil || f.Enum() == nil || f.Enum().FullName() != rackmanager.ReturnCode(0).Descriptor().FullName() ||
		rackmanager.ReturnCode(m.Get(f).Enum()) != rackmanager.ReturnCode_RETURN_CODE_FAILURE {
		return false, ""
	}
	if message = text(m, "message"); message == "" {
		message = text(m, "error_message")
	}
	return true, message
}

// text returns a member that is a single text, "" when there is no such member.
func text(m protoreflect.Message, name protoreflect.Name) string {
	f := m.Descriptor().Fields().ByName(name)
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() || f.IsMap() {
		return ""
	}
	return m.Get(f).String()
}

// printable cuts a text, and takes out of it what looks like a secret.
func printable(s string, limit int) string {
	return strings.ToValidUTF8(shorten(telemetry.RedactText(s), limit), "")
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
