// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
)

// Lookup is what a manifest offers, by role and component. Its JSON form is stored
// with the object.
type Lookup struct {
	Devices map[Role]map[string]Entry `json:"devices"`
	Images  map[Role]map[string]Image `json:"switch_system_images"`
}

// Entry is one package for one target.
type Entry struct {
	// Filename is the type directory and the base name.
	Filename      string         `json:"filename"`
	Target        string         `json:"target"`
	Component     string         `json:"component"`
	Bundle        string         `json:"bundle"`
	FirmwareType  string         `json:"firmware_type"`
	Version       *string        `json:"version"`
	Subcomponents []Subcomponent `json:"subcomponents"`
}

// Image is one switch image.
type Image struct {
	Component     string `json:"component"`
	PackageName   string `json:"package_name"`
	Version       string `json:"version"`
	ImageFilename string `json:"image_filename"`
	LocationType  string `json:"location_type"`
	FirmwareType  string `json:"firmware_type"`
	Required      bool   `json:"required"`
}

// Lookup builds the table, nil when the manifest offers nothing.
func (m *Manifest) Lookup() (*Lookup, error) {
	images, err := m.Images()
	if err != nil {
		return nil, err
	}
	l := m.devices()
	for i := range images {
		image := &images[i]
		if l.Images[RoleSwitch] == nil {
			l.Images[RoleSwitch] = make(map[string]Image)
		}
		l.Images[RoleSwitch][sourceNVOS+"_"+image.FirmwareType] = Image{
			Component: sourceNVOS, PackageName: image.PackageName, Version: image.Version, ImageFilename: image.FileName,
			LocationType: image.LocationType, FirmwareType: image.FirmwareType, Required: image.Required,
		}
	}
	if len(l.Devices) == 0 && len(l.Images) == 0 {
		return nil, nil
	}
	return l, nil
}

// devices is the table without the switch images.
func (m *Manifest) devices() *Lookup {
	l := &Lookup{Devices: make(map[Role]map[string]Entry), Images: make(map[Role]map[string]Image)}
	for i := range m.Boards {
		b := &m.Boards[i]
		for _, role := range b.Role.lookupRoles() {
			for j := range b.Firmware {
				l.add(role, &b.Firmware[j])
			}
		}
	}
	return l
}

// add enters the files of a component for every target that takes them.
func (l *Lookup) add(role Role, c *Component) {
	type place struct{ key, target string }
	entered := make(map[place]bool)
	for _, row := range componentsOfRole(role) {
		// Node types share targets; which of them takes an entry is found out later.
		at := place{row.Key, row.Target}
		if row.Source != c.Source || entered[at] {
			continue
		}
		entered[at] = true
		number := 0
		for _, p := range c.payloads() {
			file := p.file()
			if file == "" || isInBand(c.Source) && !flintFile(file) {
				continue
			}
			number++
			l.enter(role, row.Key, number, Entry{
				Filename: path.Join(typeDirectory(c.Type), file), Target: row.Target, Component: c.Source, Bundle: c.Bundle,
				FirmwareType: firmwareType(c.Type), Version: c.Version, Subcomponents: slices.Clone(c.Subcomponents),
			})
		}
	}
}

// enter stores an entry. A later entry of the same source replaces one with the
// same number; one of another source or for another target takes the next number,
// since two different components are meant.
func (l *Lookup) enter(role Role, key string, number int, e Entry) {
	devices := l.Devices[role]
	if devices == nil {
		devices = make(map[string]Entry)
		l.Devices[role] = devices
	}
	if e.Subcomponents == nil {
		e.Subcomponents = []Subcomponent{}
	}
	for ; ; number++ {
		name := fmt.Sprintf("%s_%s_%04d", key, e.FirmwareType, number)
		old, taken := devices[name]
		if !taken || old.Component == e.Component && old.Target == e.Target {
			devices[name] = e
			return
		}
	}
}

// Encode returns the stored form of a table.
func (l *Lookup) Encode() ([]byte, error) {
	data, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encode lookup table: %w", err)
	}
	return data, nil
}

// DecodeLookup reads a stored table; nil for one that offers nothing.
func DecodeLookup(data []byte) (*Lookup, error) {
	var l *Lookup
	if len(data) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(data, &l); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%w at byte %d", err, syntax.Offset)
		}
		return nil, err
	}
	return l, nil
}

// entriesFor returns the entries of a node type's role. Older tables may have some
// types under a role of their own.
func (l *Lookup) entriesFor(t node.Type) map[string]Entry {
	if l == nil {
		return nil
	}
	devices, ok := l.Devices[RoleOf(t)]
	if p, _ := product.ByID(t.ID); !ok && p.OlderRole != "" {
		return l.Devices[Role(p.OlderRole)]
	}
	return devices
}

// Image finds the switch image of a release channel.
func (l *Lookup) Image(softwareType string) (Image, bool) {
	if l == nil {
		return Image{}, false
	}
	for _, key := range slices.Sorted(maps.Keys(l.Images[RoleSwitch])) {
		image := l.Images[RoleSwitch][key]
		if image.Component == sourceNVOS && strings.EqualFold(image.FirmwareType, strings.TrimSpace(softwareType)) {
			return image, true
		}
	}
	return Image{}, false
}

// Path is where a cache keeps the image, "" when its name cannot be one of a file.
func (i Image) Path() string {
	if !validFileName(i.ImageFilename) {
		return ""
	}
	return path.Join(typeDirectory(i.FirmwareType), i.ImageFilename)
}
