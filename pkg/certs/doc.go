// SPDX-License-Identifier: Apache-2.0

// Package certs builds TLS configurations whose certificates and trusted roots
// follow their files on disk without a restart, names the peer of a connection,
// and makes the certificate authority of a test or lab installation.
//
// Everything is TLS 1.3 and mutual unless a caller asks for less by name.
package certs
