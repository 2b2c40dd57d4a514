// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
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
	row   product.Component
	rank  int
}

// candidates are the entries for a node type, in flash order. An empty channel
// takes those of every release channel.
func (l *Lookup) candidates(t node.Type, channel string) []candidate {
	rows := componentsOf(t)
	var out []candidate
	entries := l.entriesFor(t)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e := entries[name]
		if channel != "" && !strings.EqualFold(e.FirmwareType, channel) {
			continue
		}
		key := NormalKey(name)
		for rank, row := range rows {
			if row.Key == key && row.Source == e.Component && row.Target == e.Target && row.File.Fits(path.Base(e.Filename)) {
				out = append(out, candidate{name, e, row, rank})
				break
			}
		}
	}
	// Rows of one target stand for one step, so that the names decide there.
	slices.SortStableFunc(out, func(a, b candidate) int {
		if a.row.Key == b.row.Key && a.row.Target == b.row.Target {
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
		if !s.selects(t, &c.row) || taken[c.row.Key] && !c.row.Several {
			continue
		}
		taken[c.row.Key] = true
		found = append(found, c)
	}
	if len(found) == 0 {
		return none()
	}
	if one, ok := bundle(t, found); ok {
		return []Target{one}, nil
	}
	targets := make([]Target, 0, len(found))
	for _, c := range found {
		target := targetOf(&c)
		if c.row.ForgetsTask {
			if err := l.expectVersion(t, &target, &c); err != nil {
				return nil, err
			}
		}
		targets = append(targets, target)
	}
	return targets, nil
}

func targetOf(c *candidate) Target {
	t := Target{
		Key: c.row.Key, Component: c.row.Target, Source: c.entry.Component, Path: c.entry.Filename,
	}
	if c.entry.Version != nil {
		t.Version = *c.entry.Version
	}
	return t
}

// bundle replaces the components of a product by its one package, when they all
// come from one file and nothing is left out.
func bundle(t node.Type, found []candidate) (Target, bool) {
	p, _ := product.ByID(t.ID)
	if !p.Bundle || len(found) != len(p.Components) {
		return Target{}, false
	}
	for i := range found {
		if found[i].entry.Filename != found[0].entry.Filename {
			return Target{}, false
		}
	}
	one := targetOf(&found[0])
	one.Key, one.Component = found[0].entry.Component, "" // the package decides
	return one, true
}

// expectVersion notes the version of a controller that forgets its update task
// when it restarts.
func (l *Lookup) expectVersion(typ node.Type, t *Target, c *candidate) error {
	matches := 0
	for _, e := range l.entriesFor(typ) {
		if e.Component == c.row.Source && e.Target == c.row.Target && e.Filename == c.entry.Filename {
			matches++
		}
	}
	p, _ := product.ByID(typ.ID)
	what := fmt.Sprintf("%s %s target %s", p.Title(), c.row.Key, path.Base(t.Path))
	switch {
	case matches == 0:
		return errorf(KindTargets, "%s has no matching firmware manifest lookup entry", what)
	case matches > 1:
		return errorf(KindTargets, "%s matches multiple firmware manifest lookup entries", what)
	case blank(t.Version):
		return errorf(KindTargets, "%s is missing its firmware manifest version", what)
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
