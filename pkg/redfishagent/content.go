// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/agent"
	"github.com/rackbus/rackbus/pkg/firmware"
	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// packageContent is what a firmware package says of itself: the package, and those
// that it carries. A nil one stands for an image that says nothing.
type packageContent struct{ packages []redfish.PackageVersions }

// only is the version of a package with a single image.
func (c *packageContent) only() (version string, ok bool) {
	if len(c.packages) != 1 || len(c.packages[0].Components) != 1 {
		return "", false
	}
	return c.packages[0].Components[0].Version, true
}

// Names of images that shelf archives and packages stand for.
const (
	imageSupplies   = "PSU"
	imageMCU        = "MCU"
	imageController = "PMC"
)

// deltaController is the UUID of Delta's shelf controller: a package for it says
// by its own version what the controller will have.
const deltaController = "0b4e248c8bcf41379b99d0394c808ba5"

// forHMC reports whether the package names itself one for the GPU baseboard. One
// that carries packages for both halves of a tray is judged by its own name.
func (c *packageContent) forHMC() bool {
	switch {
	case c == nil || len(c.packages) == 0:
		return false
	case len(c.packages) > 1:
		return redfish.PackageVersions{Version: c.packages[0].Version}.ForBaseboard()
	default:
		return c.packages[0].ForBaseboard()
	}
}

// forSupplies reports whether the package brings images for power supplies.
func (c *packageContent) forSupplies() bool {
	return c != nil && slices.ContainsFunc(c.packages, func(p redfish.PackageVersions) bool {
		return slices.ContainsFunc(p.Components, func(i redfish.PackageComponent) bool { return flashplan.SupplyImage("", i.Name) })
	})
}

// forController reports whether the package brings nothing but an image for the
// controller of a shelf.
func (c *packageContent) forController() bool {
	return c != nil && len(c.packages) == 1 && len(c.packages[0].Components) == 1 &&
		strings.EqualFold(c.packages[0].Components[0].Name, imageController)
}

// read reads what a package says. An image that is none says nothing: the device judges
// it. Nor does a package for a tray that does not hold together; one for a shelf is
// refused, since shelves take what they are pushed.
func (p *pkgStages) read(img *image) (*packageContent, error) {
	content, err := readContent(img, img.size)
	switch {
	case err == nil:
		return content, nil
	case p.u.c.Profile().Kind == redfish.KindPowerShelf:
		return nil, agent.Fail(job.FailureInvalidArgument, phaseUpdate,
			fmt.Sprintf("Upload failed for target %s: the package %s cannot be read: %v", p.label, img.name, err), err)
	}
	p.u.t.Logger().Warn("package header not readable, its versions stay unknown", "op", "check", "err", err)
	return nil, nil
}

func readContent(r io.ReaderAt, size int64) (*packageContent, error) {
	format, err := firmware.FormatOf(r)
	if err != nil {
		return nil, err
	}
	switch format {
	case firmware.FormatPLDM:
		return readPLDM(r, size)
	case firmware.FormatTar:
		archive, err := firmware.ReadArchive(r, size)
		if errors.Is(err, firmware.ErrNotArchive) || err == nil && !archive.Manifest {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return archiveContent(archive), nil
	default:
		return nil, nil
	}
}

func archiveContent(a *firmware.Archive) *packageContent {
	name := map[firmware.Purpose]string{
		firmware.PurposePSU: imageSupplies, firmware.PurposeMCU: imageMCU, firmware.PurposeBMC: imageController,
	}[a.Purpose]
	return &packageContent{packages: []redfish.PackageVersions{{
		Version: a.Version, Components: []redfish.PackageComponent{{Name: name, Version: a.Version}},
	}}}
}

// readPLDM reads a package and those inside it.
func readPLDM(r io.ReaderAt, size int64) (*packageContent, error) {
	content := &packageContent{}
	at := map[string]int{}
	for part, err := range firmware.Packages(r, size) {
		if err != nil {
			return nil, err
		}
		if isController(part.Package) {
			version := part.Package.Version
			return &packageContent{packages: []redfish.PackageVersions{{
				Version: version, Components: []redfish.PackageComponent{{Name: imageController, Version: version}},
			}}}, nil
		}
		at[fmt.Sprint(part.Path)] = len(content.packages)
		content.packages = append(content.packages, redfish.PackageVersions{Version: part.Package.Version})
	}
	images, err := firmware.Images(r, size)
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		p := &content.packages[at[fmt.Sprint(i.Path)]]
		one := redfish.ParsePackageComponent(i.Name, i.Version)
		one.SKU = i.SKU
		if !slices.Contains(p.Components, one) {
			p.Components = append(p.Components, one)
		}
	}
	return content, nil
}

// isController looks for the initial descriptor of Delta's shelf controller.
func isController(p *firmware.Package) bool {
	return slices.ContainsFunc(p.Records, func(r firmware.DeviceRecord) bool {
		return len(r.Descriptors) > 0 && r.Descriptors[0].Type == firmware.DescriptorUUID &&
			strings.EqualFold(strings.ReplaceAll(r.Descriptors[0].Value(), "-", ""), deltaController)
	})
}
