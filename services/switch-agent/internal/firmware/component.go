// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// ImageRow is the name under which inventories list the operating system.
const ImageRow = "NVOS"

// Folders on the switch.
const (
	firmwareDir = "/host/fw-images"
	imagesDir   = "/host/nos-images"
	bundleDir   = "/tmp"
)

// listed are the components that callers list and push files for.
var listed = [...]string{"BMC", "FPGA", "EROT", "CPLD", "BIOS", "TRANSCEIVER"}

// Listed is the resource of a component that callers may list: CPLD stands for the
// first CPLD.
func Listed(component string) (string, error) {
	name := strings.ToUpper(strings.TrimSpace(component))
	if !slices.Contains(listed[:], name) {
		return "", fmt.Errorf("unknown switch component %q; there are %s", component, strings.Join(listed[:], ", "))
	}
	if name == "CPLD" {
		return "CPLD1", nil
	}
	return name, nil
}

// Updateable reports whether updates of a component of the inventory are known.
// The ASIC's firmware comes with the image.
func Updateable(component string) bool {
	target, err := flashplan.SwitchTarget(component)
	return err == nil && (slices.Contains(listed[:], target) || slices.Contains(flashplan.SwitchBundle(), target))
}

// folder is where the files of a target go: those of all CPLDs together.
func folder(target string) string {
	name := strings.ToLower(target)
	if strings.HasPrefix(name, "cpld") {
		name = "cpld"
	}
	return path.Join(firmwareDir, name)
}

// Inventory is the installed firmware.
type Inventory struct {
	Components map[string]nvue.FirmwareVersion
	Image      nvue.ImageState
}

// ReadInventory reads the components and the image.
func ReadInventory(ctx context.Context, c *nvue.Client) (Inventory, error) {
	components, err := c.Firmware(ctx)
	if err != nil {
		return Inventory{}, err
	}
	image, err := c.Image(ctx)
	return Inventory{Components: components, Image: image}, err
}

// items are the inventory in the form that versions are compared in.
func (i Inventory) items() []redfish.FirmwareItem {
	var out []redfish.FirmwareItem
	for name, c := range i.Components {
		out = append(out, redfish.FirmwareItem{Name: name, URI: "/nvue_v1/platform/firmware/" + name, Version: c.Version})
	}
	out = append(out, redfish.FirmwareItem{Name: ImageRow, URI: "/nvue_v1/system/image", Version: i.Image.CurrentBuild})
	slices.SortFunc(out, func(a, b redfish.FirmwareItem) int { return strings.Compare(a.Name, b.Name) })
	return out
}
