// SPDX-License-Identifier: Apache-2.0

// Package seal encrypts credentials and other request secrets so that only the
// agents of one family can read them.
//
// It is an envelope: a random AES-256 data key per request and family seals any
// number of payloads with GCM; the data key itself travels wrapped (X25519,
// nkeys curve keys) to the family's public key. A request for 10,000 nodes so
// costs one curve operation and 10,000 cheap ones. The sender key lives in the
// memory of one process only.
//
// Sealing hides content and binds it to its place (see AAD). It does not prove
// who sealed it: anyone with the public key can. Who may write where is decided
// by the rights of the bus users.
package seal
