// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// packageContent is what a firmware package says of itself. A nil one stands
// for an image that says nothing.
type packageContent struct {
	version string
	images  []packageImage
}

// packageImage is one image of a package, with the component it is for.
type packageImage struct{ name, version string }

// forHMC reports whether the package names itself one for the GPU baseboard.
func (c *packageContent) forHMC() bool {
	if c == nil {
		return false
	}
	for _, number := range []string{"4059", "4764", "4974", "4975"} {
		if strings.Contains(c.version, number) {
			return true
		}
	}
	return redfish.IsHMCPackage(c.version) ||
		slices.ContainsFunc(c.images, func(i packageImage) bool { return redfish.IsHMCPackage(i.name) })
}

// forSupplies reports whether the package brings images for power supplies.
func (c *packageContent) forSupplies() bool {
	return c != nil && slices.ContainsFunc(c.images, func(i packageImage) bool {
		return redfish.IsPowerUnitPackage("", []string{i.name})
	})
}

// read reads the header of a package. An image that is none, or whose header
// does not hold together, says nothing: the device judges it.
func (p *pkgStages) read(img *image) *packageContent {
	header, err := firmware.ReadPackage(bufio.NewReader(io.NewSectionReader(img, 0, img.size)))
	if errors.Is(err, firmware.ErrNotPLDM) {
		return readManifest(io.NewSectionReader(img, 0, img.size))
	}
	if err != nil {
		p.u.t.Logger().Warn("package header not readable, its versions stay unknown", "op", "check", "err", err)
		return nil
	}
	content := &packageContent{version: header.Version}
	for _, record := range header.Records {
		for n, at := range record.Components {
			one := packageImage{name: record.Name(n), version: strings.TrimSpace(header.Components[at].Version)}
			if !slices.Contains(content.images, one) {
				content.images = append(content.images, one)
			}
		}
	}
	return content
}
