// SPDX-License-Identifier: Apache-2.0

// Package admission lets jobs in: it takes the nodes they work on, stores their
// records and offers their commands, all in one transaction of the state stream,
// or refuses them with the reason.
//
// A node belongs to at most one job at a time, whatever API process asks and
// however many do. That rests on the expected revisions of the transaction, not
// on anything in this process. A batch with more nodes than a transaction holds
// is admitted in chunks; no agent starts a child before the last chunk is in.
// Should the process die between chunks, the jobs service closes the admission.
package admission
