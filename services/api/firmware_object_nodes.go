// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/firmware/catalog"
	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// apply is one application of a firmware object, stored or not, to nodes.
type apply struct {
	rackID       string
	firmwareType string
	nodes        []selected
	selection    manifest.Selection
	force        bool

	objectID string
	// cache holds the files.
	cache   string
	targets map[node.Type][]manifest.Target
	// artifacts are what has to be fetched, for a manifest that is not stored.
	artifacts []manifest.Artifact
	// files are the records of a stored object's files, by path.
	files map[string]*catalog.Artifact
}

// resolveInline finds out what a manifest means for the nodes, and whether its files
// may be fetched.
func (s *Server) resolveInline(a *apply, parsed *manifest.Manifest) error {
	a.objectID, a.cache = parsed.ID(), ephemeralCache(parsed.ID())
	types := typesOf(a.nodes)
	some, err := parsed.Select(types, a.firmwareType, a.selection)
	if err != nil {
		return err
	}
	table, err := some.Lookup()
	if err != nil {
		return err
	}
	if a.targets, err = table.Resolve(types, a.firmwareType, a.selection); err != nil {
		return err
	}
	var lists [][]manifest.Target
	for t, targets := range a.targets {
		if flashplan.Supported(t.ID) {
			lists = append(lists, targets)
		}
	}
	if a.artifacts, err = some.ArtifactsFor(lists...); err != nil {
		return err
	}
	return s.checkArtifacts(a.artifacts)
}

// resolveStored does so for a stored object.
func (s *Server) resolveStored(ctx context.Context, a *apply, o *catalog.Object) error {
	a.objectID, a.cache = o.GetId(), o.GetId()
	data, err := inCatalog(ctx, s, func(ctx context.Context) ([]byte, error) { return s.catalog.Lookup(ctx, o.GetId()) })
	if err != nil {
		return err
	}
	table, err := manifest.DecodeLookup(data)
	switch {
	case err != nil:
		return &manifest.Error{Kind: manifest.KindTargets,
			Message: fmt.Sprintf("failed to parse firmware object %s lookup table: %v", o.GetId(), err)}
	case table == nil:
		return &manifest.Error{Kind: manifest.KindTargets,
			Message: fmt.Sprintf("firmware object %s has no parsed components", o.GetId())}
	}
	if a.targets, err = table.Resolve(typesOf(a.nodes), a.firmwareType, a.selection); err != nil {
		return err
	}
	records, err := inCatalog(ctx, s, func(ctx context.Context) ([]*catalog.Artifact, error) {
		return s.catalog.CacheArtifacts(ctx, o.GetId())
	})
	if err != nil {
		return err
	}
	a.files = make(map[string]*catalog.Artifact, len(records))
	for _, r := range records {
		a.files[r.GetPath()] = r
	}
	return nil
}

// applyNodes are the nodes of an apply for the admission.
func (s *Server) applyNodes(a *apply) []admission.Node {
	targets := s.newTargets()
	out := make([]admission.Node, len(a.nodes))
	for i := range a.nodes {
		out[i] = s.applyNode(targets, a, &a.nodes[i])
	}
	return out
}

// applyNode validates one node; a refusal concerns that node only.
func (s *Server) applyNode(targets *targetBuilder, a *apply, n *selected) admission.Node {
	refusal := s.refuseNode(a, n)
	if refusal != nil {
		return admission.Node{Ref: n.ref, Refusal: refusal}
	}
	target, err := targets.build(n, forFirmwareUpdate)
	if err != nil {
		var fault *node.Error
		if errors.As(err, &fault) && fault.Code != node.CodeCredentialsUnsupported {
			err = fmt.Errorf("Failed to construct node for type %s: %w", n.typ, err) //nolint:staticcheck // published text
		}
		return admission.Node{Ref: n.ref, Refusal: &admission.Refusal{Code: job.FailureInvalidArgument, Message: err.Error()}}
	}
	update := a.update(n.typ)
	if len(update.GetTargets()) == 0 {
		return admission.Node{Ref: n.ref, Family: n.typ.Family} // its job ends with the admission
	}
	return firmwareNode(n.ref, n.typ, target, update)
}

// update is what nodes of a type are asked to do.
func (a *apply) update(t node.Type) *rackbusv1.FirmwareUpdate {
	return &rackbusv1.FirmwareUpdate{
		Targets: firmwareTargets(a.cache, a.targets[t], a.files), Activate: true, Force: a.force, Mixed: true,
	}
}

// refuseNode says why a node takes no part, whoever may log in to it; nil when it
// does.
func (s *Server) refuseNode(a *apply, n *selected) *admission.Refusal {
	refuse := func(code job.FailureCode, format string, args ...any) *admission.Refusal {
		return &admission.Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	if !a.selection.Includes(n.typ) {
		return refuse(job.FailureInvalidArgument, "No firmware targets provided for node type %s", n.typ)
	}
	if !flashplan.Supported(n.typ.ID) {
		return refuse(job.FailureInvalidArgument, "firmware updates of node type %s are not supported by this version", n.typ)
	}
	if a.targets[n.typ] != nil {
		var fault *workflowError
		if _, err := planUpdate(n.typ, a.update(n.typ)); errors.As(err, &fault) {
			return refuse(fault.code, "%v", err)
		} else if err != nil {
			return refuse(job.FailureInvalidArgument, "%v", err)
		}
	}
	if err := n.profile.Check(s.knownProfile); err != nil {
		return refuse(job.FailureInvalidArgument, "%v", err)
	}
	return nil
}

// phasePlanning is the phase of failures before anything was sent to a device.
const phasePlanning = "planning"

// planningFailure is the result of a job that failed in its planning.
func planningFailure(f *job.Failure) string {
	summary := strings.Join(strings.Fields(f.Message), " ")
	data, err := json.Marshal(struct {
		Status       string `json:"status"`
		Phase        string `json:"phase"`
		ErrorCode    string `json:"error_code"`
		FailureCode  string `json:"failure_code"`
		ErrorMessage string `json:"error_message"`
		Summary      string `json:"summary"`
	}{"failed", f.Phase, f.Code.String(), string(f.FailureCode), summary, summary})
	if err != nil {
		return ""
	}
	return string(data)
}
