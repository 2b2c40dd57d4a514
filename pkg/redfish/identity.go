// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"slices"
	"strings"
)

// isFungible reports whether several devices share the entry's name in packages,
// so that only the SKU tells which image is for it.
func isFungible(name string) bool {
	lower := strings.ToLower(name)
	has := func(word string) bool { return strings.Contains(lower, word) }
	switch {
	case has("sma"), has("nvme_e1s"):
		return true
	case has("cpld"):
		return !isBaseboardEntry(name)
	default:
		return has("gpu") && !has("inforom") && !has("erot") && !has("driver")
	}
}

// identities are the SKU and model of the device an entry runs on, as far as
// they are known.
func identities(item FirmwareItem) []string {
	return slices.DeleteFunc([]string{item.SKU, item.Model}, func(s string) bool { return strings.TrimSpace(s) == "" })
}

// skuFits reports whether an image for a SKU is for the device of an entry.
func skuFits(sku string, item FirmwareItem) bool {
	return sku != "" && slices.ContainsFunc(append(identities(item), item.SoftwareID),
		func(own string) bool { return plainSKU(own) == plainSKU(sku) })
}

// plainSKU makes 0x0000A1 and a1 the same.
func plainSKU(s string) string {
	s = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "0x")
	if rest := strings.TrimLeft(s, "0"); rest != "" {
		return rest
	}
	return s
}

// MatchPackages is Profile.MatchPackages with the SKUs of the device: entries
// whose image depends on it are identified first. A device that does not tell
// them leaves such entries unverified.
func (c *Client) MatchPackages(ctx context.Context, packages []PackageVersions, inventory []FirmwareItem, scope []string) (PackageMatch, error) {
	m := newMatcher(packages, inventory)
	identified, err := c.Identify(ctx, inventory, func(item FirmwareItem) bool {
		return isFungible(item.Name) &&
			slices.ContainsFunc(m.candidates(item, nil), func(c candidate) bool { return c.SKU != "" })
	})
	if err != nil {
		return PackageMatch{}, err
	}
	return c.profile.MatchPackages(packages, identified, scope), nil
}

// Identify fills in SKU and Model of the wanted entries from the devices they run
// on. What cannot be read stays empty; rejected credentials and the end of ctx
// are errors.
func (c *Client) Identify(ctx context.Context, inventory []FirmwareItem, wanted func(FirmwareItem) bool) ([]FirmwareItem, error) {
	const op = "identify firmware entry"
	out := slices.Clone(inventory)
	for i := range out {
		item := &out[i]
		if !wanted(*item) {
			continue
		}
		device, err := c.deviceOf(ctx, op, *item)
		if err != nil {
			return nil, err
		}
		if item.SKU == "" {
			item.SKU = device.text("SKU")
		}
		if item.Model == "" && !strings.Contains(strings.ToLower(item.Name), "gpu") {
			item.Model = device.text("Model")
		}
	}
	return out, nil
}

// deviceOf reads the resource that tells which device an entry runs on: for
// boards and their logic the chassis of the entry's name, for GPUs the chassis
// that the entry relates to or whose processor it does, for drives the drive.
func (c *Client) deviceOf(ctx context.Context, op string, item FirmwareItem) (document, error) {
	lower := strings.ToLower(item.Name)
	paths, gpu := item.RelatedItems, false
	switch {
	case strings.Contains(lower, "cpld"), strings.Contains(lower, "sma"):
		paths = []string{rootPath + "/Chassis/" + strings.Replace(item.Name, "FW_", "", 1)}
	case strings.Contains(lower, "gpu"):
		gpu = true
	}
	for _, path := range paths {
		r, err := c.follow(ctx, op, path, c.timing.Collection)
		if in := chassisLink(r); err == nil && gpu && r.text("SKU") == "" && in != "" {
			r, err = c.follow(ctx, op, in, c.timing.Collection)
		}
		if err != nil {
			if hopeless(ctx, err) {
				return nil, err
			}
			continue
		}
		// The model of a GPU is one for people.
		if r.text("SKU") != "" || !gpu && r.text("Model") != "" {
			return r.document, nil
		}
	}
	return nil, nil
}

func chassisLink(r *resource) string {
	if r == nil {
		return ""
	}
	return r.object("Links").link("Chassis")
}
