// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
)

// Names of components in manifests that rules ask for.
const (
	sourceHMC      = product.SourceHMC
	sourceBMC      = product.SourceBMC
	sourceSwitchVR = product.SourceBundle
	// sourceArm is the operating system image of a data processing unit.
	sourceArm = "BF3_BFB"
)

// targetHGX is the target of whole packages for the GPU baseboard.
const targetHGX = flash.BaseboardPath

// componentsOf are the components of a node type, in flash order.
func componentsOf(t node.Type) []product.Component {
	p, _ := product.ByID(t.ID)
	return p.Components
}

// componentsOfRole are the components of all node types of a role.
func componentsOfRole(r Role) []product.Component {
	var out []product.Component
	for _, p := range product.All() {
		if roleOfFamily(p.Family) == r {
			out = append(out, p.Components...)
		}
	}
	return out
}

// Keys are the names by which components of a node type can be selected, in flash
// order.
func Keys(t node.Type) []string {
	var keys []string
	for _, c := range componentsOf(t) {
		if !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// isInBand reports whether a component is flashed from the host.
func isInBand(source string) bool {
	return slices.ContainsFunc(inBandSources, func(s string) bool { return strings.EqualFold(s, source) })
}

var inBandSources = func() []string {
	var sources []string
	for _, c := range componentsOfRole(RoleCompute) {
		if c.InBand && !slices.Contains(sources, c.Source) {
			sources = append(sources, c.Source)
		}
	}
	return sources
}()

// normalKeys are the keys of lookup tables in the order in which an entry's key is
// compared with them: a name stands before those that it begins with.
var normalKeys = func() []string {
	var keys []string
	for _, p := range product.All() {
		for _, c := range p.Components {
			keys = append(keys, c.Key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	return slices.Compact(keys)
}()

// NormalKey is the component name of a lookup table's key, such as HMC of
// HMC_prod_0001.
func NormalKey(entry string) string {
	for _, k := range normalKeys {
		if entry == k || strings.HasPrefix(entry, k+"_") {
			return k
		}
	}
	key, _, _ := strings.Cut(entry, "_")
	return key
}
