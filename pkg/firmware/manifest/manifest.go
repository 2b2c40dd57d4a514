// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strings"
)

// Bounds of a manifest. A product has a handful of boards with some dozens of
// components; these are Rackbus choices that keep one request from filling the
// catalogue.
const (
	// MaxBytes is the largest manifest that is read.
	MaxBytes = 16 << 20
	// MaxPayloads is how many files it may name.
	MaxPayloads = 4096
	// maxIDBytes bounds an id, since it names a directory.
	maxIDBytes = 200
)

// Manifest is one product at one milestone.
type Manifest struct {
	ProductName string
	Milestone   string
	Boards      []Board
}

// Board is one board of the product.
type Board struct {
	Name  string
	SKUID string
	// Type is the role as it is written; Role is what that means.
	Type string
	Role Role
	// Firmware and Software are the components, in order.
	Firmware []Component
	Software []Component
}

// Component is one entry of a board: a firmware package or a switch image.
type Component struct {
	// Source is the name of the component in the manifest.
	Source string
	// Version is nil when the manifest has none.
	Version       *string
	Type          string
	Bundle        string
	Locations     []Location
	Subcomponents []Subcomponent
	// Context is where the entry stands, for messages.
	Context string
	board   string
}

// Location is one file of a component.
type Location struct {
	Location     string
	LocationType string
	// Type is what the file is for; only some are installed.
	Type        string
	FileName    string
	Name        string
	PackageName string
	// Required is false for an image whose download may fail.
	Required bool
	SHA256   string
	// index is its place among the locations of the component.
	index int
}

// Subcomponent is a part of a package, with its own version.
type Subcomponent struct {
	Component string  `json:"component"`
	Version   string  `json:"version"`
	SKUID     *string `json:"skuid"`
}

// Parse reads a manifest. What it checks is what every use needs: that it is JSON,
// has an id, and is built like a manifest. Check and Select look at its content.
func Parse(data []byte) (*Manifest, error) {
	if len(data) > MaxBytes {
		return nil, errorf(KindSyntax, "%sit has %d bytes, at most %d are accepted", prefixSyntax, len(data), MaxBytes)
	}
	root, err := decode(data)
	if err != nil {
		return nil, err
	}
	m := &Manifest{ProductName: root.text("ProductName")}
	if blank(m.ProductName) {
		return nil, errorf(KindIdentity, "config_json.ProductName is required")
	}
	milestones, ok := root.list("Milestones")
	if !ok {
		return nil, errorf(KindIdentity, "JSON must contain 'Milestones' array")
	}
	if len(milestones) != 1 {
		return nil, errorf(KindIdentity, "Milestones must contain exactly one milestone; found %d", len(milestones))
	}
	milestone, _ := milestones[0].(map[string]any)
	if m.Milestone = object(milestone).text("Name"); blank(m.Milestone) {
		return nil, errorf(KindIdentity, "Milestones[0].Name is required")
	}
	if !safeID(m.ID()) {
		return nil, errorf(KindIdentity, "%s", TextUnsafeID)
	}
	if _, ok := object(milestone).list("BoardSKUs"); !ok {
		return nil, errorf(KindFirmware, "%sMilestones[0] must contain 'BoardSKUs' array", prefixFirmware)
	}
	payloads := 0
	object(milestone).each("BoardSKUs", func(i int, o object) {
		b := parseBoard(i, o)
		for j := range b.Firmware {
			payloads += len(b.Firmware[j].Locations)
		}
		m.Boards = append(m.Boards, b)
	})
	if payloads > MaxPayloads {
		return nil, errorf(KindFirmware, "%sit names %d files, at most %d are accepted", prefixFirmware, payloads, MaxPayloads)
	}
	m.applyProductDefaults()
	return m, nil
}

// TextUnsafeID refuses an id that cannot name a directory.
const TextUnsafeID = "firmware object Id must be a single path-safe component"

// ID is the id of the firmware object that the manifest describes.
func (m *Manifest) ID() string { return m.ProductName + "_" + m.Milestone }

// CheckID refuses an id that cannot be one of a firmware object.
func CheckID(id string) error {
	if !safeID(id) {
		return errorf(KindIdentity, "%s", TextUnsafeID)
	}
	return nil
}

// safeID reports whether an id can name a directory: it is one path element, and
// neither a control character nor its length keeps it from being one.
func safeID(id string) bool {
	if id == "" || id == "." || id == ".." || len(id) > maxIDBytes || strings.ContainsAny(id, `/\`) {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd })
}

func parseBoard(i int, o object) Board {
	b := Board{Name: o.text("Name"), SKUID: o.text("SKUID"), Type: o.text("Type")}
	b.Role = roleOf(b.Type)
	components := o.member("Components")
	context := fmt.Sprintf("Milestones[0].BoardSKUs[%d].Components", i)
	components.each("Firmware", func(j int, e object) {
		b.Firmware = append(b.Firmware, parseComponent(fmt.Sprintf("%s.Firmware[%d]", context, j), b.Name, e))
	})
	components.each("Software", func(j int, e object) {
		b.Software = append(b.Software, parseComponent(fmt.Sprintf("%s.Software[%d]", context, j), b.Name, e))
	})
	return b
}

func parseComponent(context, board string, o object) Component {
	c := Component{
		Source: o.text("Component"), Type: o.text("Type"), Bundle: o.text("Bundle"), Context: context, board: board,
	}
	if v, ok := o["Version"].(string); ok {
		c.Version = &v
	}
	o.each("Locations", func(k int, l object) {
		c.Locations = append(c.Locations, Location{
			Location: l.text("Location"), LocationType: l.text("LocationType"), Type: l.text("Type"),
			FileName: l.text("FileName"), Name: l.text("Name"), PackageName: l.text("PackageName"),
			Required: l.flag("Required", true), SHA256: strings.ToLower(strings.TrimSpace(l.text("Sha256"))), index: k,
		})
	})
	o.each("SubComponents", func(_ int, s object) {
		sub := Subcomponent{Component: s.text("Component"), Version: s.text("Version")}
		if sku, ok := s["SKUID"].(string); ok {
			sub.SKUID = &sku
		}
		if sub.Component != "" && sub.Version != "" {
			c.Subcomponents = append(c.Subcomponents, sub)
		}
	})
	return c
}

// productVR is the product whose manifests leave types out.
const productVR = "VR-NVL72"

// applyProductDefaults fills in what manifests of VR NVL72 leave out: the type of
// the BMC's package file, and the release channel of three components.
func (m *Manifest) applyProductDefaults() {
	if !strings.EqualFold(m.ProductName, productVR) {
		return
	}
	for i := range m.Boards {
		b := &m.Boards[i]
		if b.Role != RoleCompute && b.Role != RoleSwitch {
			continue
		}
		for j := range b.Firmware {
			c := &b.Firmware[j]
			for k := range c.Locations {
				l := &c.Locations[k]
				if c.Source == sourceBMC && blank(l.Type) && strings.HasSuffix(l.FileName, ".fwpkg") {
					l.Type = payloadFirmware
				}
			}
			if blank(c.Type) && (c.Source == sourceHMC || c.Source == sourceBMC || c.Source == sourceSwitchVR) {
				c.Type = defaultTypeVR
			}
		}
	}
}

// defaultTypeVR is the release channel that manifests of VR NVL72 mean without a word.
const defaultTypeVR = "Prod"

// version is the text of a component's version.
func (c *Component) version() string {
	if c.Version == nil {
		return ""
	}
	return *c.Version
}

// FirmwareType is the release channel, in lower case; "prod" when there is none.
func (c *Component) FirmwareType() string { return firmwareType(c.Type) }

func firmwareType(t string) string {
	t = strings.ToLower(strings.TrimSpace(t))
	if t == "" {
		return "prod"
	}
	return t
}
