// SPDX-License-Identifier: Apache-2.0

package manifest

import "strings"

// sourceNVOS is the component that switch images are listed as.
const sourceNVOS = "NVOS"

// SwitchImage is the operating system image of a release channel.
type SwitchImage struct {
	PackageName  string
	Version      string
	FileName     string
	LocationType string
	FirmwareType string
	Required     bool
	location     Location
}

// Images selects the switch images, in order. The first entry of a release channel
// is the one that counts.
func (m *Manifest) Images() ([]SwitchImage, error) {
	var images []SwitchImage
	seen := make(map[string]bool)
	for i := range m.Boards {
		b := &m.Boards[i]
		if b.Type != string(RoleSwitch) {
			continue
		}
		for j := range b.Software {
			c := &b.Software[j]
			if c.Source != sourceNVOS {
				continue
			}
			image, err := m.image(b, c)
			if err != nil {
				return nil, err
			}
			if !seen[image.FirmwareType] {
				seen[image.FirmwareType] = true
				images = append(images, image)
			}
		}
	}
	return images, nil
}

func (m *Manifest) image(b *Board, c *Component) (SwitchImage, error) {
	refuse := func(format string, args ...any) (SwitchImage, error) {
		return SwitchImage{}, errorf(KindImage, prefixImage+format, args...)
	}
	switch {
	case blank(c.version()):
		return refuse("%s.Version is required", c.Context)
	case blank(c.Type):
		return refuse("%s.Type is required", c.Context)
	case len(c.Locations) == 0:
		return refuse("%s.Locations is required", c.Context)
	}
	named := false
	var best *Location
	top, tie := -1, false
	for i := range c.Locations {
		l := &c.Locations[i]
		named = named || !blank(l.Location)
		name := l.file()
		if !strings.HasSuffix(strings.ToLower(name), ".bin") {
			continue
		}
		switch s := imageScore(l, name); {
		case s > top:
			best, top, tie = l, s, false
		case s == top:
			tie = true
		}
	}
	switch {
	case !named:
		return refuse("switch system image '%s' (%s) is missing Location", c.Source, firmwareType(c.Type))
	case best == nil:
		return refuse("%s.Locations must include an NVOS .bin image location", c.Context)
	case tie:
		return refuse("%s.Locations contains multiple NVOS .bin image candidates", c.Context)
	case blank(best.LocationType):
		return refuse("%s.Locations selected LocationType is required", c.Context)
	}
	name := m.packageName(b, best)
	if name == "" {
		return refuse("%s.Locations selected PackageName is required", c.Context)
	}
	return SwitchImage{
		PackageName: name, Version: c.version(), FileName: best.file(), LocationType: strings.TrimSpace(best.LocationType),
		FirmwareType: firmwareType(c.Type), Required: best.Required, location: *best,
	}, nil
}

// imageScore says how much a file looks like the image for the switch.
func imageScore(l *Location, base string) int {
	name, file, location := strings.ToUpper(l.Name), strings.ToUpper(base), strings.ToUpper(l.Location)
	score := 0
	if strings.Contains(name, "NVOS") || strings.Contains(file, "NVOS") {
		score += 2
	}
	if strings.Contains(name, "AMD64") || strings.Contains(file, "AMD64") || strings.Contains(location, "/AMD64/") {
		score++
	}
	return score
}

// packageName is that of the image, else the first one among the images of the
// board, else the product's, else the board's.
func (m *Manifest) packageName(b *Board, l *Location) string {
	if !blank(l.PackageName) {
		return l.PackageName
	}
	for j := range b.Software {
		if b.Software[j].Source != sourceNVOS {
			continue
		}
		for _, other := range b.Software[j].Locations {
			if !blank(other.PackageName) {
				return other.PackageName
			}
		}
	}
	if !blank(m.ProductName) {
		return m.ProductName
	}
	return strings.TrimSpace(b.Name)
}
