// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/admission"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// textNoRecovery refuses what no switch offers a way for.
const textNoRecovery = "precondition failed: allow_onie_recovery cannot be honoured, because no known operation of NVUE or of a switch's BMC " +
	"leads into ONIE; leave it unset, and reinstall a switch without a working NVOS over its serial console"

var versionInName = regexp.MustCompile(`\d+\.\d+\.\d+`)

// buildOf infers the build that an image installs from its file name.
func buildOf(file string) (string, error) {
	base := path.Base(file)
	stem := strings.TrimSuffix(base, path.Ext(base))
	found := versionInName.FindAllString(stem, -1)
	slices.Sort(found)
	switch found = slices.Compact(found); len(found) {
	case 1:
		return "nvos-" + found[0], nil
	case 0:
		return "", fmt.Errorf("the name %s contains no version of the form X.Y.Z, from which the target build is inferred", base)
	default:
		return "", fmt.Errorf("the name %s contains several versions (%s); the target build cannot be inferred", base, strings.Join(found, ", "))
	}
}

// imageJobs is a batch that installs an image.
func imageJobs(nodes []selected, update *rackbusv1.SwitchImageUpdate) *switchJobs {
	return &switchJobs{
		typ: job.TypeSwitchSystemImageUpdate, nodes: nodes, noun: "switch system image", poll: "GetSwitchSystemImageJobStatus",
		command: func(cmd *rackbusv1.JobCommand) {
			cmd.Operation = &rackbusv1.JobCommand_SwitchImageUpdate{SwitchImageUpdate: update}
		},
	}
}

// imageJobInfos lists the jobs of a batch.
func imageJobInfos(res admission.Result) (jobs []*rackmanager.SwitchSystemImageUpdateJobInfo) {
	eachAdmitted(res, func(nodeID, jobID string) {
		jobs = append(jobs, &rackmanager.SwitchSystemImageUpdateJobInfo{NodeId: nodeID, JobId: jobID})
	})
	return jobs
}

// UpdateSwitchSystemImage admits a job for each switch that installs an image from
// the firmware directory.
func (m *rackManager) UpdateSwitchSystemImage(ctx context.Context, req *rackmanager.UpdateSwitchSystemImageRequest,
) (*rackmanager.UpdateSwitchSystemImageResponse, error) {
	nodes, err := selectNodes(req.GetNodes())
	if err != nil {
		return nil, err
	}
	refuse := func(message string) (*rackmanager.UpdateSwitchSystemImageResponse, error) {
		return &rackmanager.UpdateSwitchSystemImageResponse{Response: batchFailure("%s", message)}, nil
	}
	update := &rackbusv1.SwitchImageUpdate{ImageFilename: req.GetImageFilename()}
	b := imageJobs(nodes, update)
	created := func(res admission.Result) *rackmanager.UpdateSwitchSystemImageResponse {
		return &rackmanager.UpdateSwitchSystemImageResponse{Response: b.answer(res), Jobs: imageJobInfos(res)}
	}
	switch {
	case len(nodes) == 0:
		return refuse("no nodes specified in request")
	case req.GetImageFilename() == "":
		return refuse("image_filename is required")
	case !switchFileName.MatchString(req.GetImageFilename()):
		return refuse(badFileName("image_filename", req.GetImageFilename()))
	case req.GetAllowOnieRecovery():
		return refuse(textNoRecovery)
	}
	meta, idem, err := m.jobCall(ctx, "UpdateSwitchSystemImage", req)
	if err != nil {
		return nil, err
	}
	if res, found, err := m.admitter.Lookup(ctx, idem, refsOf(nodes)); err != nil || found {
		return created(res), err
	}
	file, refusal, err := m.switchFile(ctx, req.GetLocalFilePath())
	if err != nil {
		return nil, err
	}
	if refusal != "" {
		return refuse(refusal)
	}
	if update.TargetBuildId, err = buildOf(req.GetLocalFilePath()); err != nil {
		return refuse(err.Error())
	}
	update.File, update.SizeBytes, update.Sha256 = file.Path, file.Size, file.SHA256[:]
	res, err := m.admitSwitches(ctx, b, meta.request(nodes[0].ref.RackID, idem))
	if refused, ok := b.refused(err); ok {
		return &rackmanager.UpdateSwitchSystemImageResponse{Response: refused}, nil
	}
	if err != nil {
		return nil, err
	}
	return created(res), nil
}
