// SPDX-License-Identifier: Apache-2.0

// Package jobs is the service that turns events into the truth clients read. It
// folds the events of agents and API into job records, releases nodes, publishes
// every change of state, and ends and removes what nobody else does.
//
// Any number of replicas share the partitions of the event stream; one of them
// is active for a partition at a time. Timers go to whichever replica is free.
package jobs
