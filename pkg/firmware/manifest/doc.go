// SPDX-License-Identifier: Apache-2.0

// Package manifest reads firmware manifests and says what they mean for nodes: which
// packages a node of some type takes, in which order and where they go, which files
// have to be fetched for that, and how what is installed compares. It is pure: it
// does no I/O and keeps nothing.
//
// A manifest is one product at one milestone with several boards. Parse reads it.
// For an object that is to be stored, Check looks at all of it, Lookup builds the
// table that is kept, and Artifacts lists the files. For an apply with the manifest
// in the request, Select first takes what the node types of the request need, and
// the same steps follow. Either way Lookup.Resolve finds the targets.
//
// What differs between node types stands in pkg/product and nowhere else; node
// types that requests can only describe are rows as all others.
//
// Where the reference system treats stored and inline manifests differently, both
// are treated alike here:
//   - Network devices (CX7, CX8, BF3_NIC) may stand beside other targets in both;
//     the in-band ones are flashed first.
//   - Digests are checked when the manifest comes in, not while files are fetched.
//   - Two different files that would have one name in the cache are refused instead
//     of one silently standing in for the other.
//   - A stored manifest with a file name that no cache could keep is refused at
//     once, since it could never become available; an inline one skips such a file
//     as long as nothing needs it.
//   - Two components of different names for one target (HMC and BIOS of Supermicro
//     trays) keep both their entries in the lookup table.
package manifest
