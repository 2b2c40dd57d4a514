// SPDX-License-Identifier: Apache-2.0

// Package validator runs the external command that validates a compute tray, and
// the command that releases the tray again.
//
// A validator is never begun twice for one job, and never beside another one on
// the same node: its process group holds a lock of the node as long as any of it
// lives, and dies with the agent. The release command runs on every way out of a
// validation that was begun, also for an agent that has died, and is repeated until
// it succeeds; only a termination or the job's deadline end the job without that,
// and then its result tells so.
//
// Credentials reach the commands through a sealed file in memory whose descriptor
// is inherited, never through their arguments.
package validator
