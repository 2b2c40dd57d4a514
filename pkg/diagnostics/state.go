// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
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

// maxState bounds a value of a state in bytes: manifests and failures carry them.
const maxState = 256

// fingerprint puts together what the collectors tell of a node's state, within limit
// for each of them.
func fingerprint(ctx context.Context, collectors []Collector, limit time.Duration) (Fingerprint, error) {
	out := Fingerprint{}
	for _, c := range collectors {
		f, ok := c.(Fingerprinter)
		if !ok {
			continue
		}
		part, err := within(ctx, limit, f.Fingerprint)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
		for key, value := range part {
			out[c.Name()+"."+clip(key, maxState)] = clip(MaskText(value), maxState)
		}
	}
	return out, nil
}

// precondition asks a collector, within limit, whether the node may be examined.
func precondition(ctx context.Context, p Preconditioner, limit time.Duration) error {
	_, err := within(ctx, limit, func(ctx context.Context) (struct{}, error) { return struct{}{}, p.Precondition(ctx) })
	return err
}

func within[T any](ctx context.Context, limit time.Duration, read func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return read(ctx)
}
