// SPDX-License-Identifier: Apache-2.0

// Package catalog stores firmware objects, the artifacts of their caches, frozen
// plans, and the history of what was applied.
//
// There are two stores: one in memory, and one on the bus that survives restarts
// and is shared by every process. Both pass the suite of package catalogtest.
//
// What is too large for a record (manifests, lookup tables, plans and, if so
// configured, artifacts) is kept by its SHA-256. Records refer to it, equal
// content is kept once, and it is freed with the last record that refers to it.
package catalog
