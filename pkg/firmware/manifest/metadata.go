// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
)

// Offer is what a lookup table offers to nodes of one type.
type Offer struct {
	Type       node.Type
	Role       Role
	Components []OfferedComponent
}

// OfferedComponent is one component of an offer, under the name that selects it.
type OfferedComponent struct {
	Name          string
	Version       string
	Bundle        string
	Source        string
	Subcomponents []Subcomponent
	Artifacts     []OfferedArtifact
}

// OfferedArtifact is one file of an offered component.
type OfferedArtifact struct {
	FirmwareType string
	// Filename is the type directory and base name.
	Filename string
	Target   string
	Bundle   string
}

// Offers describes the table for people: by role, then in the order of the node
// types, components by name. Types without any component are left out.
func (l *Lookup) Offers() []Offer {
	var out []Offer
	for _, t := range node.Types() {
		if components := l.offeredTo(t); len(components) > 0 {
			out = append(out, Offer{Type: t, Role: RoleOf(t), Components: components})
		}
	}
	slices.SortStableFunc(out, func(a, b Offer) int { return cmp.Compare(a.Role, b.Role) })
	return out
}

func (l *Lookup) offeredTo(t node.Type) []OfferedComponent {
	byChannel := make(map[string][]candidate)
	for _, c := range l.candidates(t, "") {
		channel := strings.ToLower(c.entry.FirmwareType)
		byChannel[channel] = append(byChannel[channel], c)
	}
	var out []OfferedComponent
	for _, channel := range slices.Sorted(maps.Keys(byChannel)) {
		found := byChannel[channel]
		if one, ok := bundle(t, found); ok {
			found = found[:1]
			found[0].row.Key, found[0].row.Target = one.Key, one.Component
		}
		for i := range found {
			out = offer(out, &found[i])
		}
	}
	slices.SortStableFunc(out, func(a, b OfferedComponent) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// offer adds a file to the component it is of: equal in all that is told of both.
func offer(list []OfferedComponent, c *candidate) []OfferedComponent {
	t := targetOf(c)
	file := OfferedArtifact{FirmwareType: c.entry.FirmwareType, Filename: t.Path, Target: t.Component, Bundle: c.entry.Bundle}
	for i := range list {
		o := &list[i]
		if o.Name == t.Key && o.Version == t.Version && o.Source == t.Source && o.Bundle == c.entry.Bundle {
			o.Artifacts = append(o.Artifacts, file)
			return list
		}
	}
	return append(list, OfferedComponent{
		Name: t.Key, Version: t.Version, Bundle: c.entry.Bundle, Source: t.Source,
		Subcomponents: c.entry.Subcomponents, Artifacts: []OfferedArtifact{file},
	})
}

// OfferedImages are the switch images by release channel, version and file.
func (l *Lookup) OfferedImages() []Image {
	if l == nil {
		return nil
	}
	images := slices.Collect(maps.Values(l.Images[RoleSwitch]))
	slices.SortFunc(images, func(a, b Image) int {
		return cmp.Or(cmp.Compare(a.FirmwareType, b.FirmwareType), cmp.Compare(a.Version, b.Version), cmp.Compare(a.ImageFilename, b.ImageFilename))
	})
	return images
}
