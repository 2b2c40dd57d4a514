// SPDX-License-Identifier: Apache-2.0

// Package agent is the runtime that all hardware agents share. It takes
// commands, holds nodes under a session lease, runs workflows as named stages
// with checkpoints, reports, and answers synchronous queries.
//
// A job passes through these writes, each by compare and set on its checkpoint:
// the claim (owner, epoch), the intent and the outcome of stages, what the
// workflow saves in between, and last either the outcome of the job or its
// hand-over to another process. Only the outcome in the checkpoint decides how
// a job has ended; the event that tells it follows, and the command leaves the
// queue behind that. Whoever meets a checkpoint with an outcome only reports it.
//
// A workflow never repeats a hardware change blindly: a stage declares how it
// resumes, and whoever takes a job over looks at the device first. A process
// whose session is not certain sends nothing: every request to a device passes
// a [Guard].
//
// [RunDirect] runs one job in the same way without a bus, for an engineer at the
// rack.
package agent
