// SPDX-License-Identifier: Apache-2.0

// Package evidence gives out the bundles of node diagnostics to whoever has a link.
//
// A link carries its own right: job, file name and end of validity are signed with
// a key that all replicas share, so that any of them serves it, also after a
// restart, and nobody can change it. It is short-lived, because it is all that is
// needed to read the bundle.
package evidence
