// SPDX-License-Identifier: Apache-2.0

// Package artifact fetches the files of firmware objects from where a manifest
// says they are.
//
// A manifest comes from a client, so its locations are not trusted. A Policy says
// which schemes, hosts, addresses and directories may be used. Addresses are
// checked when a connection is made, behind name resolution and redirects: a
// name that resolves to something else the second time gains nothing. Without
// configuration only public addresses are contacted.
//
// A file appears at its place complete, verified and synced to disk, or not at
// all. What a broken download has got so far stays beside it under a hidden name,
// and a later one, of this or another process, continues there.
//
// Locations may carry secrets (user info, a query). They are told without them
// everywhere: in errors, logs and records.
package artifact
