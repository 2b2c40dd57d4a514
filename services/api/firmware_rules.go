// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/services/api/internal/firmwarefile"
)

// checkUpdatable refuses a node type without an agent that could update it. A job
// that no agent could take must not be accepted.
func checkUpdatable(t node.Type) error {
	if flashplan.Supported(t.ID) {
		return nil
	}
	return fmt.Errorf("firmware updates of node type %s are not supported by this version", t)
}

// errNoTargets says that a request names nothing to install.
var errNoTargets = errors.New("no firmware targets specified")

// resolveTargets finds the files of a request and describes them for the agent.
// A target list wins over the single file of older clients. Refusals of files
// wrap firmwarefile.ErrUnusable.
func (m *rackManager) resolveTargets(ctx context.Context, t node.Type, list []*rackmanager.FirmwareTarget, filename, target string,
) ([]*rackbusv1.FirmwareUpdateTarget, error) {
	if len(list) == 0 {
		if filename == "" {
			return nil, errNoTargets
		}
		one, err := m.resolveTarget(ctx, t, filename, target)
		if err != nil {
			return nil, err
		}
		return []*rackbusv1.FirmwareUpdateTarget{one}, nil
	}
	out := make([]*rackbusv1.FirmwareUpdateTarget, 0, len(list))
	for _, entry := range list {
		if entry.GetFilename() == "" {
			return nil, errEmptyFilename
		}
		one, err := m.resolveTarget(ctx, t, entry.GetFilename(), entry.GetTarget())
		if err != nil {
			if entry.GetTarget() == "" {
				return nil, err
			}
			return nil, fmt.Errorf("%w (component: %s)", err, entry.GetTarget())
		}
		out = append(out, one)
	}
	return out, nil
}

// errEmptyFilename refuses an entry of a target list without a file.
var errEmptyFilename = fileRefusal("firmware_targets entry has empty filename")

// fileRefusal is a refusal that counts as one of the file.
type fileRefusal string

func (r fileRefusal) Error() string   { return string(r) }
func (r fileRefusal) Is(e error) bool { return e == firmwarefile.ErrUnusable }

func (m *rackManager) resolveTarget(ctx context.Context, t node.Type, filename, target string) (*rackbusv1.FirmwareUpdateTarget, error) {
	timer := m.metrics.hashTimer()
	f, err := m.files.Find(ctx, filename)
	if err != nil {
		return nil, err
	}
	timer.ObserveDuration()
	if t.Family == node.FamilyPowerShelf && !flashplan.IsPowerUnit(target) {
		target = "" // the package says what it is for
	}
	return &rackbusv1.FirmwareUpdateTarget{Component: target, File: f.Path, SizeBytes: f.Size, Sha256: f.SHA256[:]}, nil
}

// workflowError is a combination of targets that cannot be worked on.
type workflowError struct {
	code    job.FailureCode
	message string
}

func (e *workflowError) Error() string { return e.message }

// checkWorkflow refuses targets that do not go together, or not with the type, by
// the plan that the agent will follow.
func checkWorkflow(t node.Type, targets []*rackbusv1.FirmwareUpdateTarget, activate bool) error {
	_, err := planUpdate(t, &rackbusv1.FirmwareUpdate{Targets: targets, Activate: activate})
	return err
}

// planUpdate arranges an update as the agent will. Refusals are *workflowError.
func planUpdate(t node.Type, update *rackbusv1.FirmwareUpdate) ([]flashplan.Group, error) {
	var targets []flashplan.Target
	for _, target := range update.GetTargets() {
		file := target.GetFile()
		if file == "" {
			file = target.GetArtifact().GetPath()
		}
		targets = append(targets, flashplan.Target{
			Component: target.GetComponent(), Key: target.GetKey(), File: file, ExpectedVersion: target.GetExpectedVersion(),
		})
	}
	groups, err := flashplan.Plan(t.ID, targets, flashplan.Options{
		Activate: update.GetActivate(), Mixed: update.GetMixed(), Force: update.GetForce(),
	})
	var refused *flashplan.Error
	if errors.As(err, &refused) {
		return nil, &workflowError{refused.Code, refused.Error()}
	}
	return groups, err
}

// checkHost refuses what goes through the host of a node where nobody can log in to
// it: in-band images, and all that is for a switch.
func checkHost(t node.Type, target *rackbusv1.NodeTarget, update *rackbusv1.FirmwareUpdate) error {
	if target.GetHost().GetCredentials() != nil {
		return nil
	}
	if t.Family == node.FamilySwitch {
		return &workflowError{job.FailureInvalidArgument, "missing host credentials for switch " + target.GetNodeId()}
	}
	groups, err := planUpdate(t, update)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(groups, func(g flashplan.Group) bool { return g.Kind == flashplan.InBand }) {
		return &workflowError{job.FailureInvalidArgument,
			"in-band targets need a host endpoint with credentials, and the node has none"}
	}
	return nil
}
