// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/node"
)

// Select returns what of the manifest the node types need: their components of the
// release channel, with the files that are installed, and no switch images. It
// then checks what is left, so that faults elsewhere in the manifest do not matter.
func (m *Manifest) Select(types []node.Type, firmwareType string, s Selection) (*Manifest, error) {
	if err := s.Check(types); err != nil {
		return nil, err
	}
	out := &Manifest{ProductName: m.ProductName, Milestone: m.Milestone}
	for i := range m.Boards {
		b := m.Boards[i]
		b.Firmware, b.Software = nil, nil
		for _, c := range m.Boards[i].Firmware {
			if kept, ok := needed(b.Role, c, types, firmwareType, s); ok {
				b.Firmware = append(b.Firmware, kept)
			}
		}
		if len(b.Firmware) > 0 {
			out.Boards = append(out.Boards, b)
		}
	}
	if err := out.checkFirmware(); err != nil {
		return nil, err
	}
	return out, out.checkDigests()
}

// needed returns a component with the files that the node types install, and false
// when none of them takes it.
func needed(role Role, c Component, types []node.Type, channel string, s Selection) (Component, bool) {
	if !blank(c.Type) && !strings.EqualFold(strings.TrimSpace(c.Type), strings.TrimSpace(channel)) {
		return c, false
	}
	wanted, all := false, false
	for _, t := range types {
		if !slices.Contains(role.lookupRoles(), RoleOf(t)) {
			continue
		}
		for _, row := range componentsOf(t) {
			if row.Source == c.Source && s.selects(t, &row) {
				wanted = true
				// Rules about file names pick among several files later.
				all = all || row.Several || row.File != (flash.File{})
			}
		}
	}
	if !wanted {
		return c, false
	}
	var kept []Location
	for _, l := range c.payloads() {
		missing := l.isFirmware() && blank(l.Location)
		if !missing && l.file() == "" {
			continue
		}
		kept = append(kept, l)
		if !all && !missing {
			break
		}
	}
	c.Locations = kept
	return c, true
}
