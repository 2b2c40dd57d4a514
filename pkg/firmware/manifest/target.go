// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
)

// Target is one package of a node's update.
type Target struct {
	// Key is the component's name, for example HMC.
	Key string
	// Component is what the node's update is told; empty lets the package decide.
	Component string
	// Source is the component's name in the manifest.
	Source string
	// Path is the type directory and base name of the file in its cache.
	Path string
	// Version is what the manifest says of the package.
	Version string
	// ExpectedVersion is compared with the installed version when the device loses
	// its task; only controllers that do so have one.
	ExpectedVersion string
}

// candidate is an entry that a node type can take.
type candidate struct {
	name  string
	entry Entry
	row   mapping
	rank  int
}

// candidates are the entries for a node type, in flash order. An empty channel
// takes those of every release channel.
func (l *Lookup) candidates(t node.Type, channel string) []candidate {
	rows := mappingsOf(t)
	var out []candidate
	entries := l.role(RoleOf(t), t.ID)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		if channel != "" && !strings.EqualFold(e.FirmwareType, channel) {
			continue
		}
		key := NormalKey(name)
		for rank, row := range rows {
			if row.key == key && row.source == e.Component && row.target == e.Target && row.file.fits(path.Base(e.Filename)) {
				out = append(out, candidate{name, e, row, rank})
				break
			}
		}
	}
	// Rows of one target stand for one step, so that the names decide there.
	slices.SortStableFunc(out, func(a, b candidate) int {
		if a.row.key == b.row.key && a.row.target == b.row.target {
			return cmp.Compare(a.name, b.name)
		}
		return cmp.Compare(a.rank, b.rank)
	})
	return out
}

// Targets are the packages of one release channel that a node type takes, in the
// order in which they are flashed.
func (l *Lookup) Targets(t node.Type, firmwareType string, s Selection) ([]Target, error) {
	channel := strings.TrimSpace(firmwareType)
	none := func() ([]Target, error) {
		return nil, errorf(KindTargets, "no matching firmware found in config for %s (%s)", RoleOf(t), t)
	}
	if channel == "" {
		return none()
	}
	taken := make(map[string]bool)
	var found []candidate
	for _, c := range l.candidates(t, channel) {
		if !s.selects(t, &c.row) || taken[c.row.key] && !c.row.takesSeveral(t) {
			continue
		}
		taken[c.row.key] = true
		found = append(found, c)
	}
	if len(found) == 0 {
		return none()
	}
	if one, ok := wholeSwitch(t, found); ok {
		return []Target{one}, nil
	}
	targets := make([]Target, 0, len(found))
	for _, c := range found {
		target := targetOf(&c)
		if t.ID == supermicro && c.row.key == "BMC" {
			if err := l.expectVersion(&target, &c); err != nil {
				return nil, err
			}
		}
		targets = append(targets, target)
	}
	return targets, nil
}

func targetOf(c *candidate) Target {
	t := Target{
		Key: c.row.key, Component: c.row.target, Source: c.entry.Component, Path: c.entry.Filename,
	}
	if c.entry.Version != nil {
		t.Version = *c.entry.Version
	}
	return t
}

// wholeSwitch replaces the parts of a VR switch by its one package, when they all
// come from one file and nothing is left out.
func wholeSwitch(t node.Type, found []candidate) (Target, bool) {
	if t.ID != switchVR || len(found) != len(mappingsOf(t)) {
		return Target{}, false
	}
	for i := range found {
		if found[i].entry.Filename != found[0].entry.Filename {
			return Target{}, false
		}
	}
	one := targetOf(&found[0])
	one.Key, one.Component = found[0].entry.Component, targetSwitchVR
	return one, true
}

// expectVersion notes the version of a controller that forgets its update task
// when it restarts.
func (l *Lookup) expectVersion(t *Target, c *candidate) error {
	matches := 0
	for _, e := range l.role(RoleCompute, supermicro) {
		if e.Component == sourceBMC && e.Target == wholePackage && e.Filename == c.entry.Filename {
			matches++
		}
	}
	file := path.Base(t.Path)
	switch {
	case matches == 0:
		return errorf(KindTargets, "Supermicro GB300 BMC target %s has no matching firmware manifest lookup entry", file)
	case matches > 1:
		return errorf(KindTargets, "Supermicro GB300 BMC target %s matches multiple firmware manifest lookup entries", file)
	case blank(t.Version):
		return errorf(KindTargets, "Supermicro GB300 BMC target %s is missing its firmware manifest version", file)
	}
	t.ExpectedVersion = strings.TrimSpace(t.Version)
	return nil
}

// Resolve finds the targets of every node type of a request that takes part. One
// type for which nothing fits refuses the request as a whole.
func (l *Lookup) Resolve(types []node.Type, firmwareType string, s Selection) (map[node.Type][]Target, error) {
	if err := s.Check(types); err != nil {
		return nil, err
	}
	out := make(map[node.Type][]Target)
	names := make([]string, 0, len(types))
	for _, t := range types {
		names = append(names, t.ID)
		if !s.Includes(t) {
			continue
		}
		targets, err := l.Targets(t, firmwareType, s)
		if err != nil {
			return nil, err
		}
		out[t] = targets
	}
	if len(out) == 0 {
		return nil, errorf(KindNoTargets, "no firmware object targets found for supplied node types: %s", strings.Join(names, ", "))
	}
	return out, nil
}
