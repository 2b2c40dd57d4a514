// SPDX-License-Identifier: Apache-2.0

// Package bootstrap makes everything that a new installation needs: a certificate
// authority and certificates, NKEYs of the bus users, the keys that credentials
// are sealed with, and for each process a directory with its configuration and the
// secrets it may have, to be copied to where the process runs.
//
// It only adds. A file that exists is never changed, so that it can be run again
// after a failure, for a further leaf site, or after an update that brings new
// roles. (The variables of nats-server are the one file that lines are added to.)
package bootstrap
