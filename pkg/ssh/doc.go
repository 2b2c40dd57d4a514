// SPDX-License-Identifier: Apache-2.0

// Package ssh runs commands and sends files on hosts and switches over SSH.
//
// Every call ends with its context or its own limit, whatever the peer does: the
// TCP connection is this package's own, with a deadline around the whole
// handshake; keep-alives close a connection whose peer is gone; a session that
// does not answer is abandoned. Host keys are checked by a policy, and only
// algorithms of the recorded key types are offered to a known host. A wrong
// password costs one attempt. Before anything is sent, a Guard is asked whether
// this process may still act on the node.
package ssh
