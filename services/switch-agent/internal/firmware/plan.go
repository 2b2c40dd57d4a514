// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware"
	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/source"
)

// step is one component that is updated from one file.
type step struct {
	// index is the place of the file in the request.
	index int
	// target is the resource of the component, ImageRow for the operating system.
	target string
}

func (s step) image() bool { return s.target == ImageRow }

// plan is what an update consists of.
type plan struct {
	steps []step
	// bundle says that the steps are all that one package brings, and may be
	// installed at once.
	bundle bool
}

// plan arranges the files of the request. It is the same under every owner of the
// job, because it depends on names and on files that cannot have changed.
func (u *update) plan(ctx context.Context) (plan, error) {
	var p plan
	for i, t := range u.cmd.GetTargets() {
		targets, err := u.targetsOf(ctx, t)
		if err != nil {
			return plan{}, err
		}
		for _, target := range targets {
			p.steps = append(p.steps, step{index: i, target: target})
		}
	}
	if len(p.steps) == 0 {
		return plan{}, agent.Fail(job.FailureInvalidArgument, phasePlanning, "the update names no firmware targets", nil)
	}
	if len(p.steps) > 1 && slices.ContainsFunc(p.steps, step.image) {
		return plan{}, agent.Fail(job.FailureInvalidArgument, phasePlanning,
			"an operating system image is installed by itself, not together with other firmware", nil)
	}
	p.bundle = u.isBundle(p.steps)
	return p, nil
}

func (u *update) targetsOf(ctx context.Context, t *rackbusv1.FirmwareUpdateTarget) ([]string, error) {
	switch {
	case flashplan.IsSwitchImage(refOf(t).Name()):
		return []string{ImageRow}, nil
	case t.GetComponent() != "":
		target, err := flashplan.SwitchTarget(t.GetComponent())
		if err != nil {
			return nil, agent.Fail(job.FailureInvalidArgument, phasePlanning, err.Error(), err)
		}
		return []string{target}, nil
	case flashplan.TakesBundle(u.t.Target().GetNodeType()):
		return flashplan.SwitchBundle(), nil
	case t.GetArtifact() != nil:
		return nil, agent.Fail(job.FailureInvalidArgument, phasePlanning,
			fmt.Sprintf("the file %s of the firmware catalogue needs the name of a component", t.GetArtifact().GetPath()), nil)
	}
	f, err := u.open(ctx, t)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return targetsIn(f, f.Size())
}

// targetsIn are the components that a package is for, in the order in which they
// are updated. Packages of GB200 and GB300 switches are of three kinds.
func targetsIn(r io.ReaderAt, size int64) ([]string, error) {
	images, err := firmware.Images(r, size)
	if err != nil || len(images) == 0 {
		return nil, agent.Fail(job.FailureInvalidArgument, phasePlanning,
			"the file is no firmware package that says what it is for; name the component", err)
	}
	brings := func(target string) bool {
		return slices.ContainsFunc(images, func(i firmware.Image) bool { return isFor(i.Name, target) })
	}
	switch {
	case brings("BIOS"):
		return []string{"BIOS", "EROT"}, nil
	case brings("CPLD1"):
		return []string{"CPLD1"}, nil
	default:
		return []string{"BMC", "EROT", "FPGA"}, nil
	}
}

// isFor reports whether the name of an image is that of a target: one of its words
// is, numbers behind it left aside.
func isFor(name, target string) bool {
	want := strings.TrimRight(target, "0123456789")
	words := strings.FieldsFunc(strings.ToUpper(name), func(c rune) bool { return !(c >= 'A' && c <= 'Z' || c >= '0' && c <= '9') })
	erot := slices.Contains(words, "EROT")
	return slices.ContainsFunc(words, func(word string) bool {
		word = strings.TrimRight(word, "0123456789")
		if word == "SBIOS" {
			word = "BIOS"
		}
		if word == "SMR" {
			word = "FPGA"
		}
		// ERoT_BMC is the root of trust in front of the BMC, not the BMC.
		return word == want && (want == "EROT" || !erot)
	})
}

// versionIn is the one version that a package brings for a target, empty when it
// does not tell.
func versionIn(r io.ReaderAt, size int64, target string) string {
	format, err := firmware.FormatOf(r)
	if err != nil || format != firmware.FormatPLDM {
		return ""
	}
	images, err := firmware.Images(r, size)
	if err != nil {
		return ""
	}
	version := ""
	for _, i := range images {
		switch {
		case !isFor(i.Name, target):
		case version != "" && version != i.Version:
			return ""
		default:
			version = i.Version
		}
	}
	return version
}

// isBundle reports whether the steps are exactly what a VR NVL72 switch takes at
// once, all from one file.
func (u *update) isBundle(steps []step) bool {
	if !flashplan.TakesBundle(u.t.Target().GetNodeType()) || len(steps) != len(flashplan.SwitchBundle()) {
		return false
	}
	file := refOf(u.cmd.GetTargets()[steps[0].index]).Name()
	for _, target := range flashplan.SwitchBundle() {
		if !slices.ContainsFunc(steps, func(s step) bool {
			return s.target == target && refOf(u.cmd.GetTargets()[s.index]).Name() == file
		}) {
			return false
		}
	}
	return true
}

func refOf(t *rackbusv1.FirmwareUpdateTarget) source.Ref {
	return source.Ref{File: t.GetFile(), Artifact: t.GetArtifact(), Size: t.GetSizeBytes(), SHA256: t.GetSha256()}
}

// baseOf is the file's own name.
func baseOf(t *rackbusv1.FirmwareUpdateTarget) string { return path.Base(refOf(t).Name()) }
