// SPDX-License-Identifier: Apache-2.0

// Package job is the domain of jobs: what a job is, which states it passes
// through, and what an event or a child does to it. Everything here is a pure
// function of its arguments: there is no clock, no I/O and no bus.
//
// Fold takes an event into a record, ApplyChild takes a child into its parent.
// Both return a new record and leave their arguments, slices included, as they
// were. A record that reached a terminal state never changes again.
package job
