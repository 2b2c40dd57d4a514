// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// wantedVersions are what the inventory should read once a package is in force.
type wantedVersions struct {
	versions []redfish.ExpectedVersion
	// complete says that they stand for everything the package brings, so that a
	// device which has them all needs nothing of it.
	complete bool
}

func wantedOf(m redfish.PackageMatch) wantedVersions {
	return wantedVersions{versions: m.Expected, complete: m.Complete()}
}

// expected is what the inventory should read once the package is in force, as
// far as the request or the package tells. A package that tells nothing gives
// nothing comparable.
func (p *pkgStages) expected(ctx context.Context, content *packageContent, inventory []redfish.FirmwareItem) (wantedVersions, error) {
	if p.u.c.Profile().Kind == redfish.KindPowerShelf {
		inventory = slices.DeleteFunc(slices.Clone(inventory), otherBank)
	}
	scope := p.send().Scope
	if promised := p.promised(); len(promised.Components) > 0 {
		m, err := p.u.c.MatchPackages(ctx, []redfish.PackageVersions{promised}, inventory, scope)
		if err != nil || len(scope) > 0 || m.Complete() {
			return wantedOf(m), err
		}
	}
	if content == nil {
		return wantedVersions{}, nil
	}
	packages := content.packages
	if version, ok := content.only(); ok && len(scope) > 0 {
		packages = []redfish.PackageVersions{forEntries(scope, version, p.state().HMC)}
	}
	m, err := p.u.c.MatchPackages(ctx, p.placed(packages), inventory, scope)
	for i := range m.Expected {
		m.Expected[i].Version = inBothBanks(m.Expected[i], inventory)
	}
	return wantedOf(m), err
}

// promised is the version that the request names: of the entries that the target
// is limited to, else of the controller that a logical component stands for.
func (p *pkgStages) promised() redfish.PackageVersions {
	version, component := p.target.GetExpectedVersion(), path.Base(p.target.GetComponent())
	scope := p.send().Scope
	switch {
	case version == "", len(scope) == 0 && p.target.GetComponent() == "":
		return redfish.PackageVersions{}
	case len(scope) == 0:
		scope = []string{component}
	}
	return forEntries(scope, version, p.state().HMC)
}

// forEntries stands for a package that brings one version for all of some entries.
func forEntries(entries []string, version string, hmc bool) redfish.PackageVersions {
	out := redfish.PackageVersions{}
	for _, entry := range entries {
		out.Components = append(out.Components, redfish.PackageComponent{Name: path.Base(entry), Version: version})
	}
	return marked(out, hmc)
}

// placed marks packages as for the GPU baseboard which are sent there on the
// request's word, although they do not say so themselves.
func (p *pkgStages) placed(packages []redfish.PackageVersions) []redfish.PackageVersions {
	if len(packages) != 1 {
		return packages
	}
	return []redfish.PackageVersions{marked(packages[0], p.state().HMC)}
}

func marked(v redfish.PackageVersions, hmc bool) redfish.PackageVersions {
	if hmc && !v.ForBaseboard() {
		v.Version = strings.TrimSpace("HGX " + v.Version)
	}
	return v
}

// otherBank is the entry of a shelf controller's second bank, which keeps what it
// has.
func otherBank(item redfish.FirmwareItem) bool {
	return strings.HasSuffix(strings.ToLower(item.Name), "pmc_alt")
}

// bothBanks is how a supply of a Delta shelf shows its two banks, for example
// 01050105.
var bothBanks = regexp.MustCompile(`^[0-9A-Fa-f]{8}$`)

// inBothBanks is the version in the form in which the entry shows it.
func inBothBanks(e redfish.ExpectedVersion, inventory []redfish.FirmwareItem) string {
	shown := slices.ContainsFunc(inventory, func(i redfish.FirmwareItem) bool {
		return i.Name == e.Name && bothBanks.MatchString(i.Version) && i.Version[:4] == i.Version[4:]
	})
	if shown && hexVersion.MatchString(e.Version) {
		return e.Version + e.Version
	}
	return e.Version
}
