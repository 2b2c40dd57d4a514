// SPDX-License-Identifier: Apache-2.0

package nmxc

import (
	"maps"
	"slices"
	"strings"
)

// Files and keys of the static configuration that have a meaning of their own.
const (
	// FileFabric and FileSubnet are the files of the fabric and the subnet manager.
	FileFabric = "fm_config"
	FileSubnet = "sm_config"
	// KeyTopology in FileFabric names the topology of the fabric.
	KeyTopology = "MNNVL_TOPOLOGY"
	// TopologyUnknown is the topology of a controller that was never given one.
	TopologyUnknown = "unknown"
)

// Config is static configuration: values by file and key.
type Config map[string]map[string]string

// Entry is one value of a Config.
type Entry struct {
	File, Key, Value string
}

// Entries gives all values, sorted by file and key.
func (c Config) Entries() []Entry {
	var out []Entry
	for _, file := range slices.Sorted(maps.Keys(c)) {
		for _, key := range slices.Sorted(maps.Keys(c[file])) {
			out = append(out, Entry{file, key, c[file][key]})
		}
	}
	return out
}

// add takes in the text of a file: one entry a line, the key before the first
// "=", else before the first white space. Lines that begin with # or ; are
// remarks. Of several values of a key the last counts, as it does for the
// controller.
func (c Config) add(file, content string) {
	if c[file] == nil {
		c[file] = map[string]string{}
	}
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			if at := strings.IndexFunc(line, func(r rune) bool { return r == ' ' || r == '\t' }); at >= 0 {
				key, value = line[:at], line[at:]
			}
		}
		if key = strings.TrimSpace(key); key != "" {
			c[file][key] = strings.TrimSpace(value)
		}
	}
}
