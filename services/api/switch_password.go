// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"regexp"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// switchUserName matches the users whose password can be changed.
var switchUserName = regexp.MustCompile(`^[A-Za-z0-9]+$`)

// UpdateSwitchSystemPassword admits a job for each switch that changes the password of
// a user. The new one is sealed for every job of its own.
func (m *rackManager) UpdateSwitchSystemPassword(ctx context.Context, req *rackmanager.UpdateSwitchSystemPasswordRequest,
) (*rackmanager.UpdateSwitchSystemPasswordResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	if err := checkPasswordUpdate(req, nodes); err != nil {
		return nil, err
	}
	meta, idem, err := m.jobCall(ctx, "UpdateSwitchSystemPassword", req)
	if err != nil {
		return nil, err
	}
	b := &switchJobs{
		typ: job.TypeSwitchSystemPasswordUpdate, nodes: nodes, noun: "switch system password update", poll: pollJob, listed: true,
		secrets: &rackbusv1.SwitchPasswordSecrets{Password: req.GetPassword()},
		command: func(cmd *rackbusv1.JobCommand) {
			cmd.Operation = &rackbusv1.JobCommand_SwitchPasswordUpdate{
				SwitchPasswordUpdate: &rackbusv1.SwitchPasswordUpdate{Username: req.GetUsername()},
			}
		},
	}
	answer := func(r *rackmanager.NodeBatchResponse) (*rackmanager.UpdateSwitchSystemPasswordResponse, error) {
		return &rackmanager.UpdateSwitchSystemPasswordResponse{Response: r}, nil
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil {
		return nil, err
	} else if found {
		return answer(b.answer(res))
	}
	res, err := m.admitSwitches(ctx, b, meta.request(nodes[0].ref.RackID, idem))
	if refused, ok := b.refused(err); ok {
		refused.Stats = nil // published: this refusal has none
		return answer(refused)
	}
	if err != nil {
		return nil, err
	}
	return answer(b.answer(res))
}

// checkPasswordUpdate checks a request, one rule after the other.
func checkPasswordUpdate(req *rackmanager.UpdateSwitchSystemPasswordRequest, nodes []selected) error {
	switch {
	case !switchUserName.MatchString(req.GetUsername()):
		return errorf(CodeInvalidArgument, "username must consist of letters and digits, at least one")
	case req.GetPassword() == "":
		return errorf(CodeInvalidArgument, "password is required")
	case len(nodes) == 0:
		return errorf(CodeInvalidArgument, textNoNodes)
	}
	seen := make(map[node.Ref]bool, len(nodes))
	for i := range nodes {
		ref := nodes[i].ref
		if seen[ref] {
			return errorf(CodeInvalidArgument, "%s", job.DuplicateText(ref.RackID, ref.NodeID))
		}
		seen[ref] = true
	}
	return nil
}
