// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Artifacts gives the files of the firmware catalogue.
type Artifacts interface {
	// Wait waits until a file is there, whole and verified, and tells of its
	// download meanwhile. An error other than the end of ctx says that it will not
	// come, and why.
	Wait(ctx context.Context, ref *rackbusv1.ArtifactRef, progress func(done, total int64)) (Artifact, error)
}

// Artifact is a verified local file.
type Artifact struct {
	Path   string
	Size   int64
	SHA256 [sha256.Size]byte
}

// fileOf names the file of a target as results tell it.
func fileOf(t *rackbusv1.FirmwareUpdateTarget) string {
	if t.GetFile() == "" {
		return t.GetArtifact().GetPath()
	}
	return t.GetFile()
}

// artifactStage waits for the files of the catalogue. Only the update's plan, not
// the device, stands still meanwhile.
func (u *update) artifactStage() agent.Stage {
	return agent.Stage{
		Name: "artifacts", Description: "Stage 0: downloading firmware object artifacts",
		Resume: agent.Repeatable, Interruptible: true, Run: u.awaitArtifacts,
	}
}

// hasArtifacts reports whether any file comes from the catalogue.
func (u *update) hasArtifacts() bool {
	for _, t := range u.cmd.GetTargets() {
		if t.GetArtifact() != nil {
			return true
		}
	}
	return false
}

func (u *update) awaitArtifacts(ctx context.Context) error {
	for i, t := range u.cmd.GetTargets() {
		if t.GetArtifact() == nil {
			continue
		}
		name := path.Base(t.GetArtifact().GetPath())
		_, err := u.artifact(ctx, i, func(done, total int64) {
			if total > 0 {
				u.t.Progress(int(100*done/total), "Stage 0: downloading firmware object artifacts: "+name)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// artifact gives a file of the catalogue. It is asked for whenever it is opened:
// what lies long unused is cleared away.
func (u *update) artifact(ctx context.Context, i int, progress func(done, total int64)) (Artifact, error) {
	target := u.cmd.GetTargets()[i]
	if u.d.opts.Artifacts == nil {
		return Artifact{}, agent.Fail(job.FailureAgentNotEquipped, phasePlanning,
			"the update needs files of the firmware catalogue, to which this agent has no access", nil)
	}
	a, err := u.d.opts.Artifacts.Wait(ctx, target.GetArtifact(), progress)
	if ctx.Err() != nil {
		return Artifact{}, context.Cause(ctx)
	}
	if err != nil && !passes(err) {
		err = agent.Fail(job.FailureArtifactDownloadFailed, phasePlanning,
			fmt.Sprintf("the file %s of the firmware catalogue is not available: %v", target.GetArtifact().GetPath(), err), err)
	}
	return a, err
}

// open opens the file of a target, in the firmware directory or the catalogue.
func (u *update) open(ctx context.Context, i int) (*image, error) {
	target := u.cmd.GetTargets()[i]
	if target.GetArtifact() == nil {
		return u.d.images.open(ctx, target)
	}
	a, err := u.artifact(ctx, i, func(int64, int64) {})
	if err != nil {
		return nil, err
	}
	return openArtifact(a, target)
}
