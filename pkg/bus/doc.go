// SPDX-License-Identifier: Apache-2.0

// Package bus is the only code that knows subjects, streams, buckets and
// headers. Services speak in jobs, locks, commands and events; this package
// turns them into JetStream messages.
//
// One stream (KV_rb) is one transaction domain: node locks, job records, the
// capacity counter, fold cursors, commands and timers share it, so that a [Tx]
// changes them together or not at all. Events travel in RB_EVT, session leases
// in KV_rb_sess, checkpoints of running jobs in KV_rb_ckpt, registered nodes in
// KV_rb_inv, the firmware catalogue in KV_rb_fw with what is too large for a
// message in the object store OBJ_rb_fw, and committed state changes for other
// systems in RACKBUS_EVENTS.
//
// Reads that decide something go to the stream leader, because a replica may
// lag behind its acknowledged writes.
package bus
