// SPDX-License-Identifier: Apache-2.0

// Package agent is the runtime that all hardware agents share. It takes
// commands, holds nodes under a session lease, runs workflows as named stages
// with checkpoints, reports, and answers synchronous queries.
//
// A workflow never repeats a hardware change blindly: a stage declares how it
// resumes, and whoever takes a job over looks at the device first. A process
// whose session is not certain sends nothing: every request to a device passes
// a [Guard].
package agent
