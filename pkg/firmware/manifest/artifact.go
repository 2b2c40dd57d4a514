// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

// Artifact is a file to be fetched.
type Artifact struct {
	// Path is the type directory and base name in a cache.
	Path string
	// Location is where it comes from, as the manifest has it; it may carry
	// secrets. LocationType says how it is fetched.
	Location     string
	LocationType string
	Component    string
	Required     bool
	// WantSHA256 is the digest that the manifest promises, nil without one.
	WantSHA256 []byte
}

// Artifacts are all files of the manifest that are installed, whatever board they
// belong to, once each and in order of their paths. Two different files that would
// have the same path are refused: one of them would reach nodes in place of the
// other.
func (m *Manifest) Artifacts() ([]Artifact, error) {
	set := make(artifactSet)
	err := m.eachPayload(func(c *Component, l *Location) error {
		if l.file() == "" {
			return nil
		}
		return set.add(artifactOf(c.Type, c.Source, true, l))
	})
	if err != nil {
		return nil, err
	}
	images, err := m.Images()
	if err != nil {
		return nil, err
	}
	for i := range images {
		image := &images[i]
		if err := set.add(artifactOf(image.FirmwareType, sourceNVOS, image.Required, &image.location)); err != nil {
			return nil, err
		}
	}
	return set.sorted(), nil
}

// ArtifactsFor are the files that targets name, once each and in order of their
// paths.
func (m *Manifest) ArtifactsFor(targets ...[]Target) ([]Artifact, error) {
	all, err := m.Artifacts()
	if err != nil {
		return nil, err
	}
	named := make(map[string]bool)
	for _, list := range targets {
		for _, t := range list {
			named[t.Path] = true
		}
	}
	return slices.DeleteFunc(all, func(a Artifact) bool { return !named[a.Path] }), nil
}

func artifactOf(channel, component string, required bool, l *Location) Artifact {
	return Artifact{
		Path: path.Join(typeDirectory(channel), l.file()), Location: strings.TrimSpace(l.Location),
		LocationType: strings.TrimSpace(l.LocationType), Component: component, Required: required, WantSHA256: l.wantSHA256(),
	}
}

// artifactSet is artifacts by path.
type artifactSet map[string]Artifact

func (s artifactSet) add(a Artifact) error {
	old, known := s[a.Path]
	switch {
	case !known:
		s[a.Path] = a
		return nil
	case old.WantSHA256 != nil && a.WantSHA256 != nil && !bytes.Equal(old.WantSHA256, a.WantSHA256),
		old.Location != a.Location && (old.WantSHA256 == nil || a.WantSHA256 == nil):
		return errorf(KindFirmware, "%scomponents %s and %s have different files of the same name: %s",
			prefixFirmware, old.Component, a.Component, a.Path)
	}
	old.Required = old.Required || a.Required
	if old.WantSHA256 == nil {
		old.WantSHA256 = a.WantSHA256
	}
	s[a.Path] = old
	return nil
}

func (s artifactSet) sorted() []Artifact {
	out := make([]Artifact, 0, len(s))
	for _, a := range s {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Artifact) int { return strings.Compare(a.Path, b.Path) })
	return out
}
