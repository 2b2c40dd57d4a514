// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/services/api/internal/firmwarefile"
)

// updatableTypes are the node types whose firmware an agent of this version can
// update. A job that no agent could take must not be accepted.
var updatableTypes = [...]string{
	"compute_gb200_nvidia", "compute_gb300_nvidia", "powershelf_gb200_liteon", "powershelf_gb300_liteon",
}

// checkUpdatable refuses a node type without an agent that could update it.
func checkUpdatable(t node.Type) error {
	if slices.Contains(updatableTypes[:], t.ID) {
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
	if t.Family == node.FamilyPowerShelf {
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

// componentArm is the operating system image of a data processing unit.
const componentArm = "BF3BFB"

// inBandComponents are network devices that are flashed with Flint from the host
// operating system, in every spelling that clients use.
var inBandComponents = [...]string{"CX7", "CONNECTX7", "CX8", "CONNECTX8", "BF3", "BF3NIC", "BLUEFIELD3"}

func componentKey(name string) string {
	return strings.ToUpper(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name))
}

// checkWorkflow refuses targets that do not go together, or not with the type.
func checkWorkflow(t node.Type, targets []*rackbusv1.FirmwareUpdateTarget, activate bool) error {
	inBand := 0
	for _, target := range targets {
		key := componentKey(target.GetComponent())
		if key == componentArm {
			return &workflowError{job.FailurePreconditionFailed,
				"BF3_BFB installs an operating system, which is not supported; update BF3_NIC with a Flint image instead"}
		}
		if slices.Contains(inBandComponents[:], key) {
			inBand++
		}
	}
	switch {
	case inBand == 0:
		return checkUpdatable(t)
	case !t.InBand:
		return &workflowError{job.FailureInvalidArgument,
			fmt.Sprintf("in-band targets (CX7, CX8, BF3_NIC) exist on GB200 compute trays only, not on %s", t)}
	case inBand < len(targets):
		return &workflowError{job.FailureInvalidArgument, "in-band targets cannot be mixed with other targets in one request"}
	case !activate:
		return &workflowError{job.FailurePreconditionFailed, "in-band targets need activate, since their firmware is loaded by a power cycle only"}
	}
	return &workflowError{job.FailurePreconditionFailed,
		"in-band updates (CX7, CX8, BF3_NIC) are not supported by this version"}
}
