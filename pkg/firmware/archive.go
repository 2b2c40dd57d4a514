// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Bounds of an archive: its files, and the bytes of its manifest.
const (
	maxEntries  = 1024
	maxManifest = 64 << 10
)

// manifestName is the file in which an archive describes itself.
const manifestName = "MANIFEST"

// Purpose is what the firmware of a power shelf is for.
type Purpose string

// Purposes of an archive.
const (
	// PurposePSU is firmware of the power supplies.
	PurposePSU Purpose = "psu"
	// PurposeMCU is firmware of the shelf's microcontrollers.
	PurposeMCU Purpose = "mcu"
	// PurposeBMC is firmware of the shelf's controller.
	PurposeBMC Purpose = "bmc"
)

// What an archive without a manifest counts as: supplies of unknown version.
const (
	UnknownVersion     = "N/A"
	unknownShelfModel  = "PowerShelf"
	unknownShelfTarget = PurposePSU
)

// Archive is what a power shelf's tar archive says of itself.
type Archive struct {
	Purpose Purpose
	Version string
	Model   string
	// Manifest says that this was read, and not assumed for want of a manifest.
	Manifest bool
	// Entries are the files, in their order.
	Entries []Entry
}

// ReadArchive reads the headers and the manifest of the tar archive (V7 or ustar)
// in the first size bytes of r. Links, devices, names that lead out of the
// archive, and a manifest without purpose, version or model are refused. Errors
// are ErrNotArchive, a *FormatError, or those of r.
func ReadArchive(r io.ReaderAt, size int64) (*Archive, error) {
	first := make([]byte, blockSize)
	if n, err := r.ReadAt(first, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read archive: %w", err)
	} else if !isTarHeader(first[:n]) {
		return nil, ErrNotArchive
	}
	files, err := entries(r, size)
	if err != nil {
		return nil, err
	}
	a := &Archive{Purpose: unknownShelfTarget, Version: UnknownVersion, Model: unknownShelfModel, Entries: files}
	for _, e := range files {
		if path.Base(e.Name) != manifestName {
			continue
		}
		if a.Manifest {
			return nil, &FormatError{Offset: e.Offset - blockSize, Field: "archive entry name", Err: errors.New("a second " + manifestName)}
		}
		if err := a.readManifest(r, e); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// readManifest reads lines of key=value. Unknown keys and lines without a key are
// passed over.
func (a *Archive) readManifest(r io.ReaderAt, e Entry) error {
	if e.Size > maxManifest {
		return &FormatError{Offset: e.Offset, Field: manifestName, Err: fmt.Errorf("has %d bytes, at most %d", e.Size, maxManifest)}
	}
	raw := make([]byte, e.Size)
	if _, err := io.ReadFull(io.NewSectionReader(r, e.Offset, e.Size), raw); err != nil {
		return fmt.Errorf("read %s: %w", manifestName, err)
	}
	values := map[string]string{}
	purposeAt, at := e.Offset, e.Offset
	for line := range bytes.Lines(raw) {
		key, value, _ := strings.Cut(strings.TrimSpace(string(line)), "=")
		key = strings.TrimSpace(key)
		values[key] = strings.TrimSpace(value)
		if key == "purpose" {
			purposeAt = at
		}
		at += int64(len(line))
	}
	for _, key := range []string{"purpose", "version", "model"} {
		if values[key] == "" {
			return &FormatError{Offset: e.Offset, Field: manifestName, Err: fmt.Errorf("names no %s", key)}
		}
	}
	purpose, known := purposeOf(values["purpose"])
	if !known {
		return &FormatError{Offset: purposeAt, Field: manifestName, Err: fmt.Errorf("unknown purpose %q", values["purpose"])}
	}
	a.Purpose, a.Version, a.Model, a.Manifest = purpose, values["version"], values["model"], true
	return nil
}

// purposeOf finds the purpose in the words of a manifest, for example
// "xyz.openbmc_project.Software.Version.VersionPurpose.BMC".
func purposeOf(text string) (Purpose, bool) {
	text = strings.ToUpper(text)
	switch {
	case strings.Contains(text, "PSU"):
		return PurposePSU, true
	case strings.Contains(text, "MCU"), strings.Contains(text, "PLDM"):
		return PurposeMCU, true
	case strings.Contains(text, "BMC"):
		return PurposeBMC, true
	default:
		return "", false
	}
}

// Format is the form in which a firmware file comes.
type Format string

// Formats of firmware files.
const (
	FormatPLDM Format = "pldm"
	FormatTar  Format = "tar"
	// FormatRaw is anything else: an image that says nothing of itself.
	FormatRaw Format = "raw"
)

// FormatOf tells the format of a file by its first bytes.
func FormatOf(r io.ReaderAt) (Format, error) {
	head, err := bufio.NewReaderSize(io.NewSectionReader(r, 0, blockSize), blockSize).Peek(blockSize)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", fmt.Errorf("read firmware file: %w", err)
	case len(head) >= uuidSize && revisionOf(head[:uuidSize]) != 0:
		return FormatPLDM, nil
	case isTarHeader(head):
		return FormatTar, nil
	default:
		return FormatRaw, nil
	}
}
