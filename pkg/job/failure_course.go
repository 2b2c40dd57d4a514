// SPDX-License-Identifier: Apache-2.0

package job

// How a job was stopped, or lost its worker.
const (
	FailureCancelledByOperator  FailureCode = "CANCELLED_BY_OPERATOR"
	FailureTerminatedByOperator FailureCode = "TERMINATED_BY_OPERATOR"
	FailureSuperseded           FailureCode = "SUPERSEDED"
	FailureShuttingDown         FailureCode = "SHUTTING_DOWN"
	FailureQueueDeadline        FailureCode = "QUEUE_DEADLINE"
	FailureDeadlineExceeded     FailureCode = "DEADLINE_EXCEEDED"
	FailureAgentLost            FailureCode = "AGENT_LOST"
	FailureAbandoned            FailureCode = "ABANDONED"
	FailureOutcomeUnknown       FailureCode = "OUTCOME_UNKNOWN"
	FailureCommandLost          FailureCode = "COMMAND_LOST"
	FailureCheckpointUnreadable FailureCode = "CHECKPOINT_UNREADABLE"
	FailurePanic                FailureCode = "PANIC"
	FailureResultTooLarge       FailureCode = "RESULT_TOO_LARGE"
	FailureInternal             FailureCode = "INTERNAL"
)

var courseFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureCancelledByOperator,
		Code:        CodeOther,
		Meaning:     "stopped at a safe point on request",
		Retry:       RetryAsIs,
		Advice:      "Nothing is wrong with the node. The message says where the job stopped.",
	},
	{
		FailureCode: FailureTerminatedByOperator,
		Code:        CodeOther,
		Meaning:     "cut by force on request; the hardware state is unknown",
		Retry:       RetryAfterInspection,
		Advice: "Diagnose the node, and look for what the message says was in flight: the device may still " +
			"be at it.",
	},
	{
		FailureCode: FailureSuperseded,
		Code:        CodeOther,
		Meaning:     "a newer job took its place before it started",
		Retry:       RetryAsIs,
		Advice:      "Follow the job that the message names; this one has changed nothing.",
	},
	{
		FailureCode: FailureShuttingDown,
		Code:        CodeInternal,
		Meaning:     "the service is shutting down",
		Retry:       RetryAsIs,
		Advice: "Send the request again once the service is back. If the state is terminated, look at the " +
			"node first.",
	},
	{
		FailureCode: FailureQueueDeadline,
		Code:        CodeTimeout,
		Meaning:     "no worker took the job before its queue deadline",
		Retry:       RetryAsIs,
		Advice: "Look why the agents of the family did not come to it: too few, or too busy. Nothing was " +
			"changed.",
	},
	{
		FailureCode: FailureDeadlineExceeded,
		Code:        CodeTimeout,
		Meaning:     "the job ran longer than its run limit",
		Retry:       RetryAfterInspection,
		Advice: "Look at the stage that took the time, and whether the device is still at work; then raise " +
			"the limit or the request's deadline.",
	},
	{
		FailureCode: FailureAgentLost,
		Code:        CodeInternal,
		Meaning:     "no agent that could work on the node is alive",
		Retry:       RetryAfterFix,
		Advice:      "Start agents of the node's family, or see why they have lost the bus.",
	},
	{
		FailureCode: FailureAbandoned,
		Code:        CodeInternal,
		Meaning:     "the worker ended without an outcome, or the job was given up",
		Retry:       RetryAfterInspection,
		Advice: "Look at the agent's log for the job: it has died over it. Diagnose the node before the " +
			"next try.",
	},
	{
		FailureCode: FailureOutcomeUnknown,
		Code:        CodeInternal,
		Meaning:     "interrupted during a hardware change whose effect cannot be known",
		Retry:       RetryAfterInspection,
		Advice: "Diagnose the node and compare it with what the stage was to change. The change was not " +
			"repeated.",
	},
	{
		FailureCode: FailureCommandLost,
		Code:        CodeInternal,
		Meaning:     "the stored command of a waiting job is missing",
		Retry:       RetryAsIs,
		Advice: "Nothing was changed. Look into the log of the jobs service for how the bus has lost a " +
			"message.",
	},
	{
		FailureCode: FailureCheckpointUnreadable,
		Code:        CodeInternal,
		Meaning:     "what an earlier owner of the job has saved cannot be read",
		Retry:       RetryAfterInspection,
		Advice: "Run one version of the agents of a family: an older one cannot go on with a job of a " +
			"newer one. Diagnose the node before the next try.",
	},
	{
		FailureCode: FailurePanic,
		Code:        CodeInternal,
		Meaning:     "the workflow crashed",
		Retry:       RetryAfterInspection,
		Advice: "This is a fault of ours: report it with the stack from the agent's log. Diagnose the node " +
			"before the next try.",
	},
	{
		FailureCode: FailureResultTooLarge,
		Code:        CodeInternal,
		Meaning:     "the job has ended, but its result was too large to be kept",
		Retry:       RetryAfterInspection,
		Advice: "The message says how the job has ended. Read the node itself for what was to be in the " +
			"result.",
	},
	{
		FailureCode: FailureInternal,
		Code:        CodeInternal,
		Meaning:     "a fault inside Rackbus",
		Retry:       RetryAfterInspection,
		Advice:      "This is a fault of ours: report it with the message and the history of the job.",
	},
}
