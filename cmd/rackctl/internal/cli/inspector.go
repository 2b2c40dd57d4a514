// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/rackbus/rackbus/pkg/firmware"
)

// inspector makes views of what is in one file.
type inspector struct {
	ctx     context.Context //nolint:containedctx // lives as long as one inspection
	r       io.ReaderAt
	size    int64
	headers bool
}

// digest is the SHA-256 of a section, empty when only headers are read.
func (in *inspector) digest(s firmware.Section) (string, error) {
	if in.headers {
		return "", nil
	}
	sum, err := firmware.Digest(in.ctx, in.r, s)
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum[:]), nil
}

// packages views the file's package and all in it. An error beside views is a
// damage: of a nested package behind them, or a checksum.
func (in *inspector) packages() ([]packageView, error) {
	var views []packageView
	var damage error
	for part, err := range firmware.Packages(in.r, in.size) {
		if err != nil {
			return views, errors.Join(damage, err)
		}
		v, err := in.onePackage(part)
		damage = errors.Join(damage, err)
		views = append(views, v)
	}
	markNested(views)
	return views, damage
}

// onePackage views one package; the error is what Verify says against it.
func (in *inspector) onePackage(part firmware.Part) (packageView, error) {
	p := part.Package
	v := packageView{
		Path: part.Path, Offset: part.Offset, Size: part.Size,
		Revision: p.Revision, Version: p.Version, HeaderSize: p.HeaderEnd,
		HeaderChecksum: checkWord(p.HeaderChecksum.Valid()), PayloadChecksum: checkNone,
	}
	if !p.Released.IsZero() {
		v.Released = p.Released.Format(time.RFC3339)
	}
	for _, r := range p.Records {
		v.Records = append(v.Records, recordOf(r))
	}
	for _, r := range p.Downstream {
		v.Downstream = append(v.Downstream, downstreamOf(r))
	}
	var damage error
	for i, c := range p.Components {
		s := c.Section()
		s.Offset += part.Offset
		sum, err := in.digest(s)
		damage = errors.Join(damage, err)
		v.Components = append(v.Components, componentView{
			Index: i, Names: namesOf(p, i), Version: c.Version, Offset: s.Offset, Size: s.Size, SHA256: sum,
			Classification: c.Classification, Identifier: c.Identifier, ComparisonStamp: hex32(c.ComparisonStamp),
			OpaqueSize: c.Opaque.Size,
		})
	}
	err := in.verify(part, &v)
	return v, errors.Join(damage, err)
}

// verify notes what was verified of a package.
func (in *inspector) verify(part firmware.Part, v *packageView) error {
	if in.headers {
		if part.Package.Revision >= 4 {
			v.PayloadChecksum = checkSkipped
		}
		if !part.Package.HeaderChecksum.Valid() {
			return fmt.Errorf("package %q: header: %w", v.Version, firmware.ErrChecksum)
		}
		return nil
	}
	_, err := firmware.Verify(in.ctx, io.NewSectionReader(in.r, part.Offset, part.Size), part.Size)
	switch {
	case part.Package.Revision < 4:
	case err == nil:
		v.PayloadChecksum = checkValid
	case !part.Package.HeaderChecksum.Valid():
		v.PayloadChecksum = checkSkipped
	default:
		v.PayloadChecksum = checkMismatch
	}
	if err != nil {
		return fmt.Errorf("package %q at offset %d: %w", v.Version, part.Offset, err)
	}
	return nil
}

// markNested notes which images are packages themselves.
func markNested(views []packageView) {
	for _, nested := range views[min(1, len(views)):] {
		n := len(nested.Path) - 1
		for i := range views {
			if slices.Equal(views[i].Path, nested.Path[:n]) {
				views[i].Components[nested.Path[n]].Package = true
			}
		}
	}
}

func (in *inspector) archive() (*archiveView, error) {
	a, err := firmware.ReadArchive(in.r, in.size)
	if err != nil {
		return nil, err
	}
	v := &archiveView{Purpose: a.Purpose, Version: a.Version, Model: a.Model, Manifest: a.Manifest}
	var damage error
	for _, e := range a.Entries {
		sum, err := in.digest(e.Section)
		damage = errors.Join(damage, err)
		v.Files = append(v.Files, entryView{Name: e.Name, Offset: e.Offset, Size: e.Size, SHA256: sum})
	}
	return v, damage
}

// namesOf are the names that the records give an image, each once.
func namesOf(p *firmware.Package, component int) []string {
	var names []string
	for _, r := range p.Records {
		for n, c := range r.Components {
			if name := r.Name(n); c == component && name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func recordOf(r firmware.DeviceRecord) recordView {
	v := recordView{
		Components: r.Components, SetVersion: r.SetVersion, SKU: r.SKU(), OptionFlags: hex32(r.OptionFlags),
		Descriptors: descriptorsOf(r.Descriptors), PackageDataSize: r.PackageData.Size, ManifestSize: r.Manifest.Size,
	}
	for n := range r.Components {
		v.Names = append(v.Names, r.Name(n))
	}
	return v
}

func downstreamOf(r firmware.DownstreamRecord) downstreamView {
	v := downstreamView{
		Components: r.Components, MinVersion: r.MinVersion, OptionFlags: hex32(r.OptionFlags),
		Descriptors: descriptorsOf(r.Descriptors), PackageDataSize: r.PackageData.Size, ManifestSize: r.Manifest.Size,
	}
	if r.MinStamp != nil {
		v.MinStamp = hex32(*r.MinStamp)
	}
	return v
}

func descriptorsOf(descriptors []firmware.Descriptor) []descriptorView {
	out := make([]descriptorView, len(descriptors))
	for i, d := range descriptors {
		out[i] = descriptorView{Type: fmt.Sprintf("0x%04x", d.Type), Name: d.Name(), Value: d.Value()}
	}
	return out
}

func hex32(n uint32) string { return fmt.Sprintf("0x%08x", n) }
