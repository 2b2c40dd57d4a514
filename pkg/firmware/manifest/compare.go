// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
)

// ComparisonStatus is how an installed version compares with the manifest's. The
// numbers are those of rack_manager.FirmwareComparisonStatus.
type ComparisonStatus int32

// The statuses of a comparison.
const (
	// Matched is installed as the manifest has it.
	Matched ComparisonStatus = 1
	// Mismatched is installed in another version.
	Mismatched ComparisonStatus = 2
	// Missing is in the manifest and not on the node.
	Missing ComparisonStatus = 3
	// Unverified is on the node, or may be, but one of the versions is not known.
	Unverified ComparisonStatus = 4
)

// Installed is one entry of a node's firmware inventory.
type Installed struct {
	Name    string
	Version string
	SKU     string
}

// Proposal is what the manifest wants of one component of a node type.
type Proposal struct {
	// Key is the component's name for filters; Source its name in the manifest.
	Key    string
	Source string
	Target string
	// Version is the package's; "" when the manifest has none.
	Version       string
	Subcomponents []Subcomponent
	row           product.Component
	family        node.Family
}

// Comparison is one line of a comparison.
type Comparison struct {
	// Component is the name in the manifest.
	Component string
	// Installed is the inventory entry, "" when none belongs to the component.
	Installed        string
	InstalledVersion string
	ProposedVersion  string
	Status           ComparisonStatus
	Target           string
	// Reason says why the versions do not match.
	Reason string
	SKU    string
}

// Proposals are the selected components of a node type, in flash order. What files
// the manifest has for them, and where these lie, does not matter here.
func (m *Manifest) Proposals(t node.Type, firmwareType string, s Selection) ([]Proposal, error) {
	if err := s.Check([]node.Type{t}); err != nil {
		return nil, err
	}
	var out []Proposal
	for _, row := range componentsOf(t) {
		if !s.selects(t, &row) {
			continue
		}
		c := m.lastOf(t, firmwareType, &row)
		taken := slices.ContainsFunc(out, func(p Proposal) bool { return p.Key == row.Key })
		if c == nil || taken {
			continue
		}
		out = append(out, Proposal{
			Key: row.Key, Source: row.Source, Target: row.Target, Version: strings.TrimSpace(c.version()),
			Subcomponents: c.Subcomponents, row: row, family: t.Family,
		})
	}
	if len(out) == 0 {
		return nil, errorf(KindTargets, "no matching firmware found in config for %s (%s)", RoleOf(t), t)
	}
	return out, nil
}

// lastOf is the component that a row takes: the last of its name, as in the lookup
// table.
func (m *Manifest) lastOf(t node.Type, channel string, row *product.Component) *Component {
	var found *Component
	for i := range m.Boards {
		b := &m.Boards[i]
		if !slices.Contains(b.Role.lookupRoles(), RoleOf(t)) {
			continue
		}
		for j := range b.Firmware {
			c := &b.Firmware[j]
			ofChannel := blank(c.Type) || strings.EqualFold(strings.TrimSpace(c.Type), strings.TrimSpace(channel))
			if c.Source == row.Source && ofChannel && fitsFilesOf(row, c) {
				found = c
			}
		}
	}
	return found
}

// fitsFilesOf reports whether a component has a file for the row. One whose files
// are not listed has it when it is the row's namesake.
func fitsFilesOf(row *product.Component, c *Component) bool {
	if row.File == (flash.File{}) {
		return true
	}
	files := c.payloads()
	for i := range files {
		if row.File.Fits(files[i].file()) {
			return true
		}
	}
	return len(files) == 0 && c.Source == row.Key
}

// Compare lays proposals beside what a node's inventory says, and reports whether
// all of it matches. A component whose version is not known on either side does
// not: it may be anything. It depends on nothing but its arguments.
func Compare(proposals []Proposal, inventory []Installed) (lines []Comparison, matches bool) {
	for i := range proposals {
		lines = append(lines, proposals[i].compare(inventory)...)
	}
	lines = distinct(lines)
	matches = len(lines) > 0
	for i := range lines {
		matches = matches && lines[i].Status == Matched
	}
	return lines, matches
}

// distinct drops lines that say the same of the same entry: a package and its
// parts may both be selected.
func distinct(lines []Comparison) []Comparison {
	seen := make(map[Comparison]bool)
	return slices.DeleteFunc(lines, func(c Comparison) bool {
		c.Target = ""
		again := seen[c]
		seen[c] = true
		return again
	})
}

func (p *Proposal) compare(inventory []Installed) []Comparison {
	entries := p.entries(inventory)
	if p.isPart() {
		return p.comparePart(entries)
	}
	own := slices.DeleteFunc(entries, func(e Installed) bool {
		_, ok := p.partFor(e)
		return ok // the version of the part says it better
	})
	var lines []Comparison
	if len(own) > 0 || len(entries) == 0 {
		lines = p.against(p.Source, p.Version, "", own)
	}
	return append(lines, p.compareParts(inventory)...)
}

// isPart reports whether the proposal is one component out of a bigger package,
// whose version is not that of the component. A package that names several, such as
// BMC+FPGA+EROT, has the version of the first.
func (p *Proposal) isPart() bool {
	first, _, combined := strings.Cut(p.Source, "+")
	if combined {
		return !strings.HasSuffix(strings.ToUpper(first), p.Key) // SBIOS is the component BIOS
	}
	return p.Source == sourceHMC && p.Target != targetHGX
}

// comparePart compares the entries of a part with the subcomponents that they show.
func (p *Proposal) comparePart(entries []Installed) []Comparison {
	if len(entries) == 0 {
		return p.against(p.Source, "", "", nil)
	}
	var lines []Comparison
	for _, e := range entries {
		name, version, of := p.Source, "", ""
		if sub, ok := p.partFor(e); ok {
			name, version, of = sub.Component, sub.Version, sku(sub)
		}
		lines = append(lines, p.line(name, version, of, e))
	}
	return lines
}

// compareParts compares what the package brings beside its own version: every entry
// in its scope with the subcomponent that it shows. Interchangeable parts are told
// apart by their SKU, and those that the node does not have are not missing.
func (p *Proposal) compareParts(inventory []Installed) []Comparison {
	scope := p.scope(inventory)
	var lines []Comparison
	for _, e := range scope {
		if sub, ok := p.partFor(e); ok {
			lines = append(lines, p.line(sub.Component, sub.Version, sku(sub), e))
		}
	}
	for _, sub := range p.Subcomponents {
		there := slices.ContainsFunc(scope, func(e Installed) bool { return fit(sub.Component, e.Name) != fitNone })
		if !there {
			lines = append(lines, p.against(sub.Component, sub.Version, sku(sub), nil)...)
		}
	}
	return lines
}

// partFor finds the subcomponent that an entry shows: that of its SKU when the
// manifest has several, else the one whose name says most.
func (p *Proposal) partFor(e Installed) (Subcomponent, bool) {
	var found []Subcomponent
	best := fitNone
	for _, sub := range p.Subcomponents {
		switch f := fit(sub.Component, e.Name); {
		case f == fitNone || f < best:
		case f > best:
			best, found = f, []Subcomponent{sub}
		default:
			found = append(found, sub)
		}
	}
	for _, sub := range found {
		if sku(sub) != "" && strings.EqualFold(sku(sub), strings.TrimSpace(e.SKU)) {
			return sub, true
		}
	}
	for _, sub := range found {
		if sku(sub) == "" || len(found) == 1 {
			return sub, true
		}
	}
	if len(found) > 0 {
		// Which of them the entry is cannot be told.
		unknown := found[0]
		unknown.Version, unknown.SKUID = "", nil
		return unknown, true
	}
	return Subcomponent{}, false
}

func sku(s Subcomponent) string {
	if s.SKUID == nil {
		return ""
	}
	return strings.TrimSpace(*s.SKUID)
}

// against compares one wanted version with the entries that show it.
func (p *Proposal) against(component, version, sku string, entries []Installed) []Comparison {
	if len(entries) > 0 {
		var lines []Comparison
		for _, e := range entries {
			lines = append(lines, p.line(component, version, sku, e))
		}
		return lines
	}
	c := Comparison{Component: component, ProposedVersion: version, Target: p.Target, SKU: sku, Status: Missing,
		Reason: "the node's inventory has no such component"}
	if len(p.row.Installed) == 0 {
		c.Status, c.Reason = Unverified, "the node's inventory does not list components of this kind"
	}
	return []Comparison{c}
}

// line compares versions as an update does after its activation: without space
// around them and regardless of case.
func (p *Proposal) line(component, version, sku string, e Installed) Comparison {
	c := Comparison{
		Component: component, Installed: e.Name, InstalledVersion: e.Version, ProposedVersion: version,
		Target: p.Target, SKU: sku, Status: Matched,
	}
	installed, wanted := strings.TrimSpace(e.Version), strings.TrimSpace(version)
	switch {
	case unknownVersion(wanted):
		c.Status, c.Reason = Unverified, fmt.Sprintf("the manifest has no version that is known to be for %s", e.Name)
	case unknownVersion(installed):
		c.Status, c.Reason = Unverified, "the node reports no version"
	case !strings.EqualFold(installed, wanted):
		c.Status, c.Reason = Mismatched, fmt.Sprintf("installed %s, the manifest has %s", installed, wanted)
	}
	return c
}

func unknownVersion(v string) bool {
	return v == "" || strings.EqualFold(v, "N/A") || strings.EqualFold(v, "unknown")
}
