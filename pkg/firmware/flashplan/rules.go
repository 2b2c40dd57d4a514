// SPDX-License-Identifier: Apache-2.0

package flashplan

import "slices"

// rule is what a node type takes, and how.
type rule struct {
	nodeType string
	// keys are the logical components of the type.
	keys []string
	// inBand says that network devices are flashed from the host.
	inBand bool
	// quirk is asked first; ok false leaves the target to the family's rules.
	quirk func(Target) (item Item, ok bool, err error)
	// shelf is the vendor of a power shelf; empty for compute trays.
	shelf string
	// tray says that it is a switch, whose agent has ways of its own.
	tray bool
	// arrange makes the groups.
	arrange func([]Item, Options) ([]Group, error)
}

// ruleOf is the table of node types.
func ruleOf(nodeType string) (rule, bool) {
	all := rules()
	at := slices.IndexFunc(all, func(r rule) bool { return r.nodeType == nodeType })
	if at < 0 {
		return rule{}, false
	}
	r := all[at]
	if r.arrange == nil {
		r.arrange = arrangeDefault
	}
	return r, true
}

func rules() []rule {
	return []rule{
		{nodeType: "compute_gb200_nvidia", keys: baseboardKeys(), inBand: true},
		{nodeType: "compute_gb200_wiwynn", keys: baseboardKeys(), inBand: true},
		{nodeType: "compute_gb300_nvidia", keys: baseboardKeys()},
		{nodeType: "compute_gb300_lenovo", quirk: lenovo},
		{nodeType: "compute_gb300_supermicro", quirk: supermicro, arrange: arrangeSupermicro},
		{nodeType: "compute_vrnvl72_nvidia"},
		{nodeType: "powershelf_gb200_liteon", shelf: "LiteOn"},
		{nodeType: "powershelf_gb200_delta", shelf: "Delta"},
		{nodeType: "powershelf_gb300_liteon", shelf: "LiteOn"},
		{nodeType: "powershelf_gb300_delta", shelf: "Delta"},
		{nodeType: "switch_gb200_nvidia", tray: true, arrange: arrangeSwitch},
		{nodeType: "switch_gb300_nvidia", tray: true, arrange: arrangeSwitch},
		{nodeType: switchVR, tray: true, arrange: arrangeSwitch},
	}
}

// Supported reports whether the type's firmware can be updated by this version.
func Supported(nodeType string) bool {
	_, ok := ruleOf(nodeType)
	return ok
}

// NodeTypes lists the types whose firmware can be updated.
func NodeTypes() []string {
	var names []string
	for _, r := range rules() {
		names = append(names, r.nodeType)
	}
	return names
}

func (r rule) item(t Target) (Item, error) {
	switch {
	case r.shelf != "":
		return r.shelfItem(t)
	case r.tray:
		return r.switchItem(t)
	}
	if item, ok, err := inBandItem(t); ok || err != nil {
		return item, err
	}
	if r.quirk != nil {
		if item, ok, err := r.quirk(t); ok || err != nil {
			return item, err
		}
	}
	return r.computeItem(t)
}
