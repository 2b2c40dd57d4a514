// SPDX-License-Identifier: Apache-2.0

// Package security holds what the security workflows of a switch share: the
// services that take certificates, the form of results, and the failpoints of
// crash tests. The workflows themselves are packages below this one.
package security
