// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Fingerprint is the state that has to stay the same while a node is examined, by
// what it is about, for example the power state and the start of the controller.
type Fingerprint map[string]string

// Changes returns what differs, in words and in a stable order. Something that is
// told in only one of the two differs as well.
func (f Fingerprint) Changes(now Fingerprint) []string {
	keys := slices.Concat(slices.Collect(maps.Keys(f)), slices.Collect(maps.Keys(now)))
	slices.Sort(keys)
	var out []string
	for _, key := range slices.Compact(keys) {
		before, had := f[key]
		after, has := now[key]
		if had != has || before != after {
			out = append(out, fmt.Sprintf("%s: %s, was %s", key, orNone(after, has), orNone(before, had)))
		}
	}
	return out
}

func orNone(value string, there bool) string {
	if !there {
		return "not told"
	}
	return fmt.Sprintf("%q", value)
}

// fingerprint puts together what the collectors tell of a node's state.
func fingerprint(ctx context.Context, collectors []Collector) (Fingerprint, error) {
	out := Fingerprint{}
	for _, c := range collectors {
		f, ok := c.(Fingerprinter)
		if !ok {
			continue
		}
		part, err := f.Fingerprint(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
		for key, value := range part {
			out[c.Name()+"."+key] = value
		}
	}
	return out, nil
}
