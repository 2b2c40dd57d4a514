// SPDX-License-Identifier: Apache-2.0

// Package switchtls finds the certificates of a switch domain.
//
// Two roots have the same layout, <root>/<domain>/{ca.pem,client.pem,client.key}:
// one holds what is installed on switches, where the client files are the
// switch's own identity, the other what we present to switches. A domain picks
// a folder; it never becomes a TLS server name.
//
// A Store reads the files anew on every call, so that a rotation needs no
// restart, and only takes over a set that two readings in a row agree on. A
// Follower does the same inside the handshakes of a long-lived connection and
// keeps the former set while the files are unusable.
package switchtls
