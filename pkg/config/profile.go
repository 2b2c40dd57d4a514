// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// InventoryProfile is the firmware inventory a node must show before an update.
type InventoryProfile struct {
	// APNames are inventory names, compared without regard to case.
	APNames []string
	// FlintDevices counts the network devices by kind; only the kinds named
	// here are checked.
	FlintDevices map[string]int
}

// flintKinds are the device kinds a profile may count.
var flintKinds = [...]string{"cx7", "cx8", "bf3_nic"}

// decodeProfile reads the two forms of a profile: a list of names, or a table.
func decodeProfile(path string, raw any, faults *Faults) InventoryProfile {
	switch x := raw.(type) {
	case []any:
		if len(x) == 0 {
			faults.add(path, raw, "the list must not be empty")
			return InventoryProfile{}
		}
		return InventoryProfile{APNames: apNames(path, x, faults)}
	case map[string]any:
		return profileTable(path, x, faults)
	default:
		faults.add(path, raw, "must be a list of names or a table")
		return InventoryProfile{}
	}
}

func profileTable(path string, table map[string]any, faults *Faults) InventoryProfile {
	var p InventoryProfile
	before := len(*faults)
	for _, key := range slices.Sorted(maps.Keys(table)) {
		child := path + "." + key
		switch key {
		case "ap_names":
			list, ok := table[key].([]any)
			if !ok {
				faults.add(child, table[key], "must be a list of names")
				continue
			}
			p.APNames = apNames(child, list, faults)
		case "flint_devices":
			counts, ok := table[key].(map[string]any)
			if !ok {
				faults.add(child, table[key], "must be a table of counts")
				continue
			}
			p.FlintDevices = flintCounts(child, counts, faults)
		default:
			faults.unknown(child, []string{path + ".ap_names", path + ".flint_devices"})
		}
	}
	if len(*faults) == before && len(p.APNames) == 0 && len(p.FlintDevices) == 0 {
		faults.add(path, nil, "needs ap_names or flint_devices")
	}
	return p
}

func flintCounts(path string, counts map[string]any, faults *Faults) map[string]int {
	out := make(map[string]int, len(counts))
	known := make([]string, 0, len(flintKinds))
	for _, kind := range flintKinds {
		known = append(known, path+"."+kind)
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		child := path + "." + kind
		if !slices.Contains(flintKinds[:], kind) {
			faults.unknown(child, known)
			continue
		}
		n, ok := counts[kind].(int64)
		if !ok || n < 0 || n > 1<<16 {
			faults.add(child, counts[kind], "must be a count")
			continue
		}
		out[kind] = int(n)
	}
	return out
}

// apNames trims the names and drops repetitions without regard to case; the
// first spelling stays.
func apNames(path string, list []any, faults *Faults) []string {
	seen := make(map[string]bool, len(list))
	names := make([]string, 0, len(list))
	for i, raw := range list {
		text, ok := raw.(string)
		name := strings.TrimSpace(text)
		if !ok || name == "" {
			faults.add(fmt.Sprintf("%s[%d]", path, i), raw, "must be a name that is not blank")
			continue
		}
		if key := strings.ToLower(name); !seen[key] {
			seen[key] = true
			names = append(names, name)
		}
	}
	return names
}

// decodeProfiles reads all profiles; their names are trimmed.
func decodeProfiles(path string, table map[string]any, faults *Faults) map[string]InventoryProfile {
	profiles := make(map[string]InventoryProfile, len(table))
	for _, raw := range slices.Sorted(maps.Keys(table)) {
		name := strings.TrimSpace(raw)
		if name == "" {
			faults.add(path, raw, "a profile name must not be blank")
			continue
		}
		if _, twice := profiles[name]; twice {
			faults.add(path+"."+name, raw, "two profiles have this name after trimming")
			continue
		}
		profiles[name] = decodeProfile(path+"."+name, table[raw], faults)
	}
	return profiles
}
