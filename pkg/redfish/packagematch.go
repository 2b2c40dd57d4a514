// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"fmt"
	"slices"
	"strings"
)

// PackageComponent is one image of a package as the package's metadata names it.
type PackageComponent struct {
	// Name is what the package calls the component, for example GPU or HMC.
	Name string
	// Type narrows the name where a package has several images of one name.
	Type string
	// SKU is the SKU of the devices the image is for, as hexadecimal text; empty
	// when the package does not say.
	SKU string
	// Version is what the inventory reads once the image is in force.
	Version string
}

// PackageVersions is what one package brings.
type PackageVersions struct {
	// Version is the version string of the package itself, by which packages for
	// the GPU baseboard are known.
	Version    string
	Components []PackageComponent
}

// ParsePackageComponent reads a key of the form Name:type,sku, of which all but
// the name may be absent.
func ParsePackageComponent(key, version string) PackageComponent {
	c := PackageComponent{Version: strings.TrimSpace(version)}
	name, sku, _ := strings.Cut(key, ",")
	c.Name, c.Type, _ = strings.Cut(name, ":")
	c.Name, c.Type, c.SKU = strings.TrimSpace(c.Name), strings.TrimSpace(c.Type), strings.TrimSpace(sku)
	return c
}

// String gives the key back.
func (c PackageComponent) String() string {
	key := c.Name
	if c.Type != "" {
		key += ":" + c.Type
	}
	if c.SKU != "" {
		key += "," + c.SKU
	}
	return key
}

// ForBaseboard reports whether a package is for the GPU baseboard. The words are
// NVIDIA's package numbers and board names.
func (p PackageVersions) ForBaseboard() bool {
	upper := strings.ToUpper(p.Version)
	if slices.ContainsFunc([]string{"HGX", "HMC", "GB200-NVL4", "4059", "4109", "4764", "4974", "4975"},
		func(word string) bool { return strings.Contains(upper, word) }) {
		return true
	}
	return slices.ContainsFunc(p.Components, func(c PackageComponent) bool {
		name := strings.ToUpper(c.Name)
		return strings.HasPrefix(name, "HGX_") || name == "HMC"
	})
}

// PackageMatch says what the inventory of a device should read once packages are
// in force.
type PackageMatch struct {
	// Expected has an entry for each inventory entry that a package is for. One
	// that cannot be decided says why in Unverified.
	Expected []ExpectedVersion
	// Unmatched are the components that no inventory entry was found for; none
	// when the scope was limited.
	Unmatched []PackageComponent
}

// Complete reports whether the expected versions stand for everything the
// packages bring, so that a device which has them all needs nothing of them.
func (m PackageMatch) Complete() bool {
	return len(m.Expected) > 0 && len(m.Unmatched) == 0 &&
		!slices.ContainsFunc(m.Expected, func(e ExpectedVersion) bool { return !e.comparable() })
}

// candidate is a component that may be the one for an entry.
type candidate struct {
	PackageComponent
	at    int // its place among the components of all packages
	score int
}

// matcher holds the components of all packages while entries are looked up.
type matcher struct {
	components []PackageComponent
	keys       []nameKey
	used       []bool
	// named says that an entry bears the component's name, so that it is for no
	// other entry of the same class: SBIOS is for HGX_SBIOS_0 where there is one,
	// else for HGX_FW_CPU_0.
	named []bool
}

func newMatcher(packages []PackageVersions, inventory []FirmwareItem) *matcher {
	m := &matcher{}
	for _, p := range packages {
		baseboard := p.ForBaseboard()
		for _, c := range p.Components {
			m.components, m.keys = append(m.components, c), append(m.keys, componentKey(c.Name, baseboard))
		}
	}
	m.used, m.named = make([]bool, len(m.components)), make([]bool, len(m.components))
	for _, item := range inventory {
		key := inventoryKey(item.Name)
		for i, c := range m.components {
			if m.keys[i].baseboard == key.baseboard && typeFits(c, key) && key.score(m.keys[i]) > classScore {
				m.named[i] = true
			}
		}
	}
	return m
}

// MatchPackages finds for each inventory entry what it should read once the
// packages are in force. scope, when not empty, names the only entries that are
// looked at, by name or URI; one that the inventory lacks is then expected
// nevertheless. The inventory has to be that from before the update: entries that
// come to be renamed are followed only to names which it does not have.
func (p Profile) MatchPackages(packages []PackageVersions, inventory []FirmwareItem, scope []string) PackageMatch {
	m := newMatcher(packages, inventory)
	entries, absent := p.entries(inventory, scope)
	var out PackageMatch
	found := make([][]candidate, len(entries))
	for i, item := range entries {
		found[i] = m.candidates(item, nil)
	}
	if !slices.ContainsFunc(inventory, func(i FirmwareItem) bool { return isBaseboardEntry(i.Name) }) {
		// A release that knows no HGX_ names lists the baseboard without them.
		claimed := slices.Clone(m.used)
		for i, item := range entries {
			if len(found[i]) == 0 {
				found[i] = m.candidates(item, claimed)
			}
		}
	}
	for i, item := range entries {
		if e, ok := decide(item, found[i]); ok {
			e.Aliases = append(aliasesOf(item.Name, inventory), p.laterNames(item.Name, inventory)...)
			out.Expected = append(out.Expected, e)
		}
	}
	for _, name := range absent {
		item := FirmwareItem{Name: leaf(name)}
		e, _ := decide(item, m.candidates(item, nil))
		e.Name, e.Required, e.Aliases = name, true, aliasesOf(name, inventory)
		out.Expected = append(out.Expected, e)
	}
	for i, c := range m.components {
		if !m.used[i] && len(scope) == 0 {
			out.Unmatched = append(out.Unmatched, c)
		}
	}
	return out
}

// entries gives those that are looked at, and the names of scope that are none.
func (p Profile) entries(inventory []FirmwareItem, scope []string) (entries []FirmwareItem, absent []string) {
	wanted := func(item FirmwareItem, name string) bool {
		return strings.EqualFold(item.URI, name) || strings.EqualFold(item.Name, leaf(name))
	}
	for _, item := range inventory {
		silent := slices.ContainsFunc(p.Silent, func(name string) bool { return strings.EqualFold(name, item.Name) })
		listed := slices.ContainsFunc(scope, func(name string) bool { return wanted(item, name) })
		if listed || len(scope) == 0 && !silent {
			entries = append(entries, item)
		}
	}
	for _, name := range scope {
		if !slices.ContainsFunc(inventory, func(item FirmwareItem) bool { return wanted(item, name) }) {
			absent = append(absent, name)
		}
	}
	return entries, absent
}

// candidates gives the best fitting components for an entry. Entries of the
// baseboard get those of baseboard packages, others those of other packages. With
// claimed it is the other way round, without the components claimed already.
func (m *matcher) candidates(item FirmwareItem, claimed []bool) []candidate {
	key := inventoryKey(item.Name)
	best := 0
	var list []candidate
	for i, c := range m.components {
		if own := m.keys[i].baseboard == key.baseboard; own != (claimed == nil) || !own && claimed[i] {
			continue
		}
		score := key.score(m.keys[i])
		if score == 0 || !typeFits(c, key) || m.named[i] && score <= classScore {
			continue
		}
		best = max(best, score)
		list = append(list, candidate{PackageComponent: c, at: i, score: score})
	}
	list = slices.DeleteFunc(list, func(c candidate) bool { return c.score < best })
	list = preferTyped(list)
	for _, c := range list {
		m.used[c.at] = true
	}
	return list
}

// preferTyped leaves the components whose type fits the entry when there are any.
func preferTyped(list []candidate) []candidate {
	typed := slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return c.Type == "" })
	if len(typed) > 0 && len(typed) < len(list) {
		return typed
	}
	return list
}

// decide gives the version an entry should read. ok is false when no component is
// for it.
func decide(item FirmwareItem, list []candidate) (e ExpectedVersion, ok bool) {
	e = ExpectedVersion{Name: item.Name}
	if len(list) == 0 {
		return e, false
	}
	fits := slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return !skuFits(c.SKU, item) })
	if known := identities(item); len(fits) == 0 && len(known) > 0 && isFungible(item.Name) {
		// Images for other devices are not for this one; those for any may be.
		fits = slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return c.SKU != "" })
		if len(fits) == 0 {
			e.Unverified = fmt.Sprintf("the package has no image for its SKU %s", strings.Join(known, " or "))
			return e, true
		}
	}
	if len(fits) > 0 {
		list = fits
	}
	versions := map[string]string{}
	for _, c := range list {
		versions[strings.ToLower(strings.TrimSpace(c.Version))] = c.Version
	}
	if len(versions) > 1 {
		e.Unverified = fmt.Sprintf("the package has %d versions of %s and the device's SKU does not tell which is for it", len(versions), list[0].Name)
		return e, true
	}
	e.Version = list[0].Version
	return e, true
}

// isBaseboardEntry reports whether an inventory entry is one of the GPU baseboard.
func isBaseboardEntry(name string) bool { return strings.HasPrefix(strings.ToLower(name), "hgx_") }

// aliasesOf are the names that a firmware release may give an entry instead, as
// far as no other entry bears them now.
func aliasesOf(name string, inventory []FirmwareItem) []string {
	name = leaf(name)
	plain := name
	for _, prefix := range []string{"HGX_", "FW_"} {
		if len(plain) > len(prefix) && strings.EqualFold(plain[:len(prefix)], prefix) {
			plain = plain[len(prefix):]
		}
	}
	var out []string
	for _, alias := range []string{"HGX_FW_" + plain, "FW_" + plain, "HGX_" + plain, plain} {
		taken := slices.ContainsFunc(inventory, func(i FirmwareItem) bool { return strings.EqualFold(i.Name, alias) })
		if !taken && !strings.EqualFold(alias, name) {
			out = append(out, alias)
		}
	}
	return out
}

// laterNames is the pattern of the names that an entry may have under another version,
// when it is the only one of its kind: of two, nobody could tell which was replaced.
func (p Profile) laterNames(name string, inventory []FirmwareItem) []string {
	for _, prefix := range p.Renamed {
		alike := 0
		for _, i := range inventory {
			if beginsWith(i.Name, prefix) {
				alike++
			}
		}
		if alike == 1 && beginsWith(name, prefix) {
			return []string{prefix + anyEnd}
		}
	}
	return nil
}

// anyEnd closes a name of which only the beginning is known.
const anyEnd = "*"

func beginsWith(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}
