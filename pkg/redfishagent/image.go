// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/digest"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// images opens firmware files and makes sure that they are what was admitted.
type images struct {
	dir     string
	digests digest.Files
}

// section reads the image from its start, whoever else reads it.
func (i *image) section() *io.SectionReader { return io.NewSectionReader(i.File, 0, i.size) }

func newImages(dir string) *images { return &images{dir: dir} }

// image is an open firmware file.
type image struct {
	*os.File
	name string
	size int64
}

// open opens the file of a target. A file that is missing, lies outside the
// firmware directory, or differs from what was admitted is refused.
func (i *images) open(ctx context.Context, target *rackbusv1.FirmwareUpdateTarget) (*image, error) {
	// os.Root keeps symbolic links inside the directory.
	root, err := os.OpenRoot(i.dir)
	if err != nil {
		return nil, agent.Fail(job.FailureFileUnreadable, phaseValidation,
			fmt.Sprintf("firmware directory %s cannot be opened on the agent", i.dir), err)
	}
	defer root.Close() //nolint:errcheck // nothing was written
	f, err := root.Open(filepath.FromSlash(target.GetFile()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, agent.Fail(job.FailureFileNotFound, phaseValidation,
			fmt.Sprintf("firmware file not found on the agent: %s", filepath.Join(i.dir, target.GetFile())), err)
	}
	if err != nil {
		return nil, agent.Fail(job.FailureFileUnreadable, phaseValidation,
			fmt.Sprintf("firmware file %s cannot be opened: %v", target.GetFile(), err), err)
	}
	img, err := i.verify(ctx, f, target)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return img, nil
}

// openArtifact opens a file of the catalogue, which was verified when it came.
func openArtifact(a Artifact, target *rackbusv1.FirmwareUpdateTarget) (*image, error) {
	name := fileOf(target)
	f, err := os.Open(a.Path)
	if err != nil {
		return nil, agent.Fail(job.FailureFileUnreadable, phaseValidation,
			fmt.Sprintf("firmware file %s of the catalogue cannot be opened: %v", name, err), err)
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() == 0 || info.Size() != a.Size) {
		err = agent.Fail(job.FailureFileChanged, phaseValidation,
			fmt.Sprintf("firmware file %s of the catalogue has %d bytes, not %d", name, info.Size(), a.Size), nil)
	}
	if want := target.GetSha256(); err == nil && len(want) > 0 && !bytes.Equal(want, a.SHA256[:]) {
		err = agent.Fail(job.FailureFileChanged, phaseValidation,
			fmt.Sprintf("firmware file %s of the catalogue has the SHA-256 %x, admitted was %x", name, a.SHA256, want), nil)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &image{File: f, name: filepath.Base(name), size: info.Size()}, nil
}

func unreadable(target *rackbusv1.FirmwareUpdateTarget, err error) error {
	if passes(err) {
		return err
	}
	return agent.Fail(job.FailureFileUnreadable, phaseValidation, fmt.Sprintf("firmware file %s: %v", target.GetFile(), err), err)
}

func (i *images) verify(ctx context.Context, f *os.File, target *rackbusv1.FirmwareUpdateTarget) (*image, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, unreadable(target, err)
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return nil, agent.Fail(job.FailureFileUnreadable, phaseValidation,
			fmt.Sprintf("firmware file %s is empty or no regular file", target.GetFile()), nil)
	}
	if want := target.GetSizeBytes(); want > 0 && want != info.Size() {
		return nil, agent.Fail(job.FailureFileChanged, phaseValidation,
			fmt.Sprintf("firmware file %s has changed since the job was admitted: it has %d bytes, admitted were %d",
				target.GetFile(), info.Size(), want), nil)
	}
	if want := target.GetSha256(); len(want) > 0 {
		sum, err := i.digests.Sum(ctx, f)
		if err != nil {
			return nil, unreadable(target, err)
		}
		if !bytes.Equal(sum[:], want) {
			return nil, agent.Fail(job.FailureFileChanged, phaseValidation,
				fmt.Sprintf("firmware file %s has changed since the job was admitted: its SHA-256 is %x, admitted was %x",
					target.GetFile(), sum, want), nil)
		}
	}
	return &image{File: f, name: filepath.Base(target.GetFile()), size: info.Size()}, nil
}
