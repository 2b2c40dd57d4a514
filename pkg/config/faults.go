// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// Fault is one thing wrong with the configuration.
type Fault struct {
	Key    string // dotted path
	Value  string // as given, secrets masked; empty when it does not matter
	Reason string
}

// Faults are all faults of a configuration. As an error it lists one per line.
type Faults []Fault

// Error lists the faults.
func (f Faults) Error() string {
	lines := make([]string, 0, len(f))
	for _, fault := range f {
		line := fault.Key
		if fault.Value != "" {
			line += " = " + fault.Value
		}
		lines = append(lines, line+": "+fault.Reason)
	}
	return strings.Join(lines, "\n")
}

func (f Faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// add notes a fault; a nil value is not shown.
func (f *Faults) add(key string, value any, reason string) {
	fault := Fault{Key: key, Reason: reason}
	switch x := value.(type) {
	case nil:
	case string:
		fault.Value = fmt.Sprintf("%q", telemetry.RedactText(x))
	default:
		fault.Value = telemetry.RedactText(fmt.Sprint(x))
	}
	if fault.Value != "" && telemetry.IsSecretKey(key[strings.LastIndexByte(key, '.')+1:]) {
		fault.Value = telemetry.Mask
	}
	*f = append(*f, fault)
}

// unknown notes a key that does not exist, with the nearest one that does.
func (f *Faults) unknown(key string, known []string) {
	reason := "unknown key"
	if near := nearest(key, known); near != "" {
		reason += ", did you mean " + near + "?"
	}
	*f = append(*f, Fault{Key: key, Reason: reason})
}

// nearest returns the known key with the least edits from key, or "" when even
// that one has little in common with it.
func nearest(key string, known []string) string {
	best, least := "", len(key)/2+1
	for _, candidate := range known {
		if d := distance(key, candidate); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance counts the single-byte edits between a and b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
