// SPDX-License-Identifier: Apache-2.0

// Package source opens the files that go onto switches: those below the firmware
// directory, and those of the firmware catalogue. A file that differs from the
// one that was admitted is refused.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware/artifactcache"
	"github.com/rackbus/rackbus/pkg/firmware/digest"
	"github.com/rackbus/rackbus/pkg/job"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// Phases that the failures of this package name: what is wrong with a file, and
// with its way from the catalogue.
const (
	phaseFile      = "validation"
	phaseArtifacts = "planning"
)

// MinSize is the least size of what a switch is given, in bytes: less is certainly
// neither an image nor firmware.
const MinSize = 1024

// Artifacts gives the files of the firmware catalogue.
type Artifacts interface {
	// Wait waits until a file is there, whole and verified, and tells of its
	// download meanwhile. An error other than the end of ctx says that it will not
	// come, and why.
	Wait(ctx context.Context, ref *rackbusv1.ArtifactRef, progress func(done, total int64)) (artifactcache.File, error)
}

// Ref names a file as a command does.
type Ref struct {
	// File is the path below the firmware directory; Artifact takes its place.
	File     string
	Artifact *rackbusv1.ArtifactRef
	// Size and SHA256 are those of the admitted file; 0 and empty are not checked.
	Size   int64
	SHA256 []byte
}

// Name is the path as results tell it.
func (r Ref) Name() string {
	if r.Artifact != nil {
		return r.Artifact.GetPath()
	}
	return r.File
}

// Files opens files. It is safe for concurrent use.
type Files struct {
	dir       string
	artifacts Artifacts
	digests   digest.Files
}

// New returns Files of a firmware directory. Without artifacts, commands that name
// files of the catalogue are refused.
func New(dir string, artifacts Artifacts) *Files {
	return &Files{dir: dir, artifacts: artifacts}
}

// File is an open file. It is safe for concurrent reads.
type File struct {
	*os.File
	// Base is the file's own name.
	Base string
	size int64
}

// Size is the size in bytes.
func (f *File) Size() int64 { return f.size }

// Open opens a file, and waits for it where it comes from the catalogue. Its
// failures are *agent.FailureError, unless ctx ends.
func (s *Files) Open(ctx context.Context, ref Ref, progress func(done, total int64)) (*File, error) {
	if ref.Artifact != nil {
		return s.openArtifact(ctx, ref, progress)
	}
	// os.Root keeps symbolic links inside the directory.
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, refuse(job.FailureFileUnreadable, err, "firmware directory %s cannot be opened on the agent", s.dir)
	}
	defer root.Close() //nolint:errcheck // nothing was written
	f, err := root.Open(filepath.FromSlash(ref.File))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(job.FailureFileNotFound, err, "firmware file not found on the agent: %s", filepath.Join(s.dir, ref.File))
	}
	if err != nil {
		return nil, refuse(job.FailureFileUnreadable, err, "firmware file %s cannot be opened: %v", ref.File, err)
	}
	return s.check(ctx, f, ref)
}

func (s *Files) openArtifact(ctx context.Context, ref Ref, progress func(done, total int64)) (*File, error) {
	if s.artifacts == nil {
		return nil, refuse(job.FailureAgentNotEquipped, nil,
			"the job needs files of the firmware catalogue, to which this agent has no access")
	}
	a, err := s.artifacts.Wait(ctx, ref.Artifact, progress)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, refuse(job.FailureArtifactDownloadFailed, err, "the file %s of the firmware catalogue is not available: %v", ref.Name(), err)
	}
	if len(ref.SHA256) > 0 && !bytes.Equal(ref.SHA256, a.SHA256[:]) {
		return nil, refuse(job.FailureFileChanged, nil, "the file %s of the firmware catalogue has the SHA-256 %x, admitted was %x",
			ref.Name(), a.SHA256, ref.SHA256)
	}
	f, err := os.Open(a.Path)
	if err != nil {
		return nil, refuse(job.FailureFileUnreadable, err, "the file %s of the firmware catalogue cannot be opened: %v", ref.Name(), err)
	}
	// It was verified when it came.
	return s.check(ctx, f, Ref{File: ref.Name(), Size: a.Size})
}

// check closes a file that is not as it should be.
func (s *Files) check(ctx context.Context, f *os.File, ref Ref) (*File, error) {
	size, err := s.measure(ctx, f, ref)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &File{File: f, Base: filepath.Base(ref.File), size: size}, nil
}

func (s *Files) measure(ctx context.Context, f *os.File, ref Ref) (int64, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return 0, refuse(job.FailureFileUnreadable, err, "firmware file %s: %v", ref.File, err)
	case !info.Mode().IsRegular():
		return 0, refuse(job.FailureFileUnreadable, nil, "firmware file %s is no regular file", ref.File)
	case info.Size() < MinSize:
		return 0, refuse(job.FailureInvalidArgument, nil, "firmware file %s has %d bytes; %d are the least that make sense", ref.File, info.Size(), MinSize)
	case ref.Size > 0 && ref.Size != info.Size():
		return 0, refuse(job.FailureFileChanged, nil, "firmware file %s has changed since it was admitted: it has %d bytes, admitted were %d",
			ref.File, info.Size(), ref.Size)
	case len(ref.SHA256) == 0:
		return info.Size(), nil
	}
	sum, err := s.digests.Sum(ctx, f)
	if err != nil {
		if ctx.Err() != nil {
			return 0, err
		}
		return 0, refuse(job.FailureFileUnreadable, err, "firmware file %s: %v", ref.File, err)
	}
	if !bytes.Equal(sum[:], ref.SHA256) {
		return 0, refuse(job.FailureFileChanged, nil, "firmware file %s has changed since it was admitted: its SHA-256 is %x, admitted was %x",
			ref.File, sum, ref.SHA256)
	}
	return info.Size(), nil
}

func refuse(code job.FailureCode, cause error, format string, args ...any) error {
	phase := phaseFile
	if code == job.FailureArtifactDownloadFailed || code == job.FailureAgentNotEquipped {
		phase = phaseArtifacts
	}
	return agent.Fail(code, phase, fmt.Sprintf(format, args...), cause)
}

// ErrName says that a name is none that a switch is given.
var ErrName = errors.New("file names on switches consist of letters, digits, '.', '_' and '-' and do not begin with '.'")

// CheckName refuses names that could mean another place than the folder they are
// put into, or something to a shell.
func CheckName(name string) error {
	valid := name != "" && name[0] != '.' && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c))
	})
	if !valid {
		return fmt.Errorf("%w: %q", ErrName, name)
	}
	return nil
}
