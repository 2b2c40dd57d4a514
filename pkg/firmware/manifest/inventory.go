// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"regexp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/node"
)

// entries are the inventory entries that show the version of a proposal. Where the
// table knows none, those that have its name in theirs.
func (p *Proposal) entries(inventory []Installed) []Installed {
	var out []Installed
	for _, e := range inventory {
		known := slices.ContainsFunc(p.row.Installed, func(pattern string) bool { return fitsPattern(pattern, e.Name) })
		if known || len(p.row.Installed) == 0 && strings.Contains(strings.ToUpper(e.Name), strings.ToUpper(p.Key)) {
			out = append(out, e)
		}
	}
	return out
}

func fitsPattern(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
	}
	return strings.EqualFold(pattern, name)
}

// scope are the entries that the proposal's package may change: on trays those of
// the GPU baseboard for its package, the others for the tray's.
func (p *Proposal) scope(inventory []Installed) []Installed {
	if p.family != node.FamilyCompute {
		return inventory
	}
	var out []Installed
	for _, e := range inventory {
		if flash.OnBaseboard(e.Name) == (p.Source == sourceHMC) {
			out = append(out, e)
		}
	}
	return out
}

// How well a subcomponent's name fits an inventory entry; more is better.
const (
	fitNone  = iota
	fitClass // of the same kind, such as EROT for HGX_FW_ERoT_CPU_0
	fitName  // of the same name, such as GPU for HGX_FW_GPU_0
	fitExact // the very entry
)

// fit compares names as packages and inventories write them.
func fit(component, entry string) int {
	if component == "" {
		return fitNone
	}
	if strings.EqualFold(component, entry) {
		return fitExact
	}
	of, to := plainName(component), plainName(entry)
	switch {
	case of == to:
		return fitExact
	case of == withoutIndex(to), squeeze(of) == squeeze(withoutIndex(to)):
		return fitName
	case of == "erot" && strings.HasPrefix(squeeze(to), "erot"):
		return fitClass
	}
	return fitNone
}

var trailingIndex = regexp.MustCompile(`_\d+$`)

func withoutIndex(name string) string { return trailingIndex.ReplaceAllString(name, "") }

func squeeze(name string) string { return strings.ReplaceAll(name, "_", "") }

// plainName is a name without what inventories put in front of it. The baseboard's
// controller, boot firmware and FPGA have two names each.
func plainName(name string) string {
	name = strings.ToLower(strings.NewReplacer("-", "_", " ", "_").Replace(strings.TrimSpace(name)))
	for _, prefix := range []string{"hgx_fw_", "hgx_", "fw_"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			name = rest
			break
		}
	}
	stem := withoutIndex(name)
	for _, same := range [][2]string{{"hmc", "bmc"}, {"sbios", "cpu"}, {"smr", "fpga"}} {
		if stem == same[0] {
			return same[1] + name[len(stem):]
		}
	}
	return name
}
