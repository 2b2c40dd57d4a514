// SPDX-License-Identifier: Apache-2.0

package agent

import "fmt"

// Failpoints of the runtime, in the order in which a job reaches them.
const (
	// FailAfterClaim is behind the claim, before anything is reported.
	FailAfterClaim = "agent.after_claim"
	// FailAfterIntent is behind the recorded intent of a Once stage.
	FailAfterIntent = "agent.after_intent"
	// FailAfterDeviceChange is behind a change of the device, before its outcome
	// is recorded. Workflows reach it with Task.Failpoint.
	FailAfterDeviceChange = "agent.after_device_change"
	// FailAfterDone is behind the sealed outcome, before it is reported.
	FailAfterDone = "agent.after_done"
	// FailBeforeAck is behind the reported outcome.
	FailBeforeAck = "agent.before_ack"

	// FailInStage begins the name of the failpoint in front of a stage's work, behind
	// its intent; the stage's name follows.
	FailInStage = "agent.stage."
	// FailAsked is where a job has taken in a request to stop.
	FailAsked = "agent.asked"
)

// crashError ends a job as if its process had died: nothing more is written.
type crashError struct{ err error }

func (e *crashError) Error() string { return e.err.Error() }

func (e *crashError) Unwrap() error { return e.err }

// Failpoint says that the job has reached a point at which crash tests let the
// process die. A workflow returns its error unchanged.
func (t *Task) Failpoint(name string) error {
	if err := t.f.failpoints.Hit(name); err != nil {
		return fmt.Errorf("failpoint %s: %w", name, &crashError{err})
	}
	return nil
}
