// SPDX-License-Identifier: Apache-2.0

// Package diagnostics examines a node for an engineer: collectors read what the
// node tells of itself, a bundle takes it up with every secret masked, and a table
// of rules recognises known faults in it.
//
// A Collector reads one thing and gives it to a Sink as files. The job runs all of
// them one after the other, also when one fails, writes the bundle, a tar.gz whose
// last entry is manifest.json, and stores it. A required collector that fails, and
// a node whose state changed meanwhile, fail the job; the bundle is stored all the
// same.
//
// Rules are data: an ordered table in which the first row that matches names the
// failure signature. They look at message ids, enumerations and members of JSON
// documents, never at texts for people.
package diagnostics
