// SPDX-License-Identifier: Apache-2.0

// Package fold turns the events of one partition into job records.
//
// A [Term] is one period in which this process is active for a partition. It
// reads the events behind the partition's cursor, folds them into the records,
// and commits cursor, records, released node locks, timers and the outbox in
// one transaction. Whoever reads the cursor again after a crash therefore folds
// exactly the events that had no effect yet.
//
// What a commit contains is decided by pure code: a draft collects what events
// do to records, release says what becomes of a node lock, and plan puts both
// into the order in which the transaction is written. Loading and committing
// are the only parts that talk to the bus.
package fold
