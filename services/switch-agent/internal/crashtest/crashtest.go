// SPDX-License-Identifier: Apache-2.0

// Package crashtest says at which points crash tests let an agent die. All points of
// a workflow take minutes under the race detector, so that a usual run takes one of
// each kind (a read, an upload, behind an intent, behind a change, a wait), and one
// with -long takes all.
package crashtest

import (
	"flag"
	"slices"
	"strconv"
)

// long is a flag of the test binaries that link this package.
var long = flag.Bool("long", false, "let the agent die at every point of a workflow, not only at one of each kind")

// Death is the n-th time that a job reaches a failpoint.
type Death struct {
	Point string
	N     int
}

// String names the death, as a test.
func (d Death) String() string { return d.Point + "#" + strconv.Itoa(d.N) }

// Times are the first n times that a job reaches a failpoint.
func Times(point string, n int) []Death {
	var out []Death
	for i := range n {
		out = append(out, Death{point, i + 1})
	}
	return out
}

// InStages are deaths at the begin of stages: prefix and name make the failpoint.
func InStages(prefix string, stages ...string) []Death {
	var out []Death
	for _, s := range stages {
		out = append(out, Death{prefix + s, 1})
	}
	return out
}

// Pick returns all deaths under -long, else those of usual, which have to be among
// them.
func Pick(all []Death, usual ...Death) []Death {
	for _, d := range usual {
		if !slices.Contains(all, d) {
			panic("crashtest: " + d.String() + " is none of the points")
		}
	}
	if *long {
		return all
	}
	return usual
}

// Long reports whether the flag is set.
func Long() bool { return *long }
