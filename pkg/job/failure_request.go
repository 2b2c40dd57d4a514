// SPDX-License-Identifier: Apache-2.0

package job

// A request that cannot be done, or not now.
const (
	FailureInvalidArgument       FailureCode = "INVALID_ARGUMENT"
	FailureDuplicateTarget       FailureCode = "DUPLICATE_TARGET"
	FailureJobTypeUnsupported    FailureCode = "JOB_TYPE_UNSUPPORTED"
	FailureCredentialsMissing    FailureCode = "CREDENTIALS_MISSING"
	FailureCredentialsUnreadable FailureCode = "CREDENTIALS_UNREADABLE"
	FailureEndpointMissing       FailureCode = "ENDPOINT_MISSING"
	FailurePreconditionFailed    FailureCode = "PRECONDITION_FAILED"
	FailureAgentNotEquipped      FailureCode = "AGENT_NOT_EQUIPPED"
	FailureNodeBusy              FailureCode = "NODE_BUSY"
	FailureCapacity              FailureCode = "CAPACITY"
	FailureAdmissionFailed       FailureCode = "ADMISSION_FAILED"
)

var requestFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureInvalidArgument,
		Code:        CodeInvalidArgument,
		Meaning:     "the request asks for something that cannot be done",
		Retry:       RetryAfterFix,
		Advice: "Read the message: it names the member of the request. Correct it and send the request " +
			"again.",
	},
	{
		FailureCode: FailureDuplicateTarget,
		Code:        CodeInvalidArgument,
		Meaning:     "the request names the node twice",
		Retry:       RetryAfterFix,
		Advice:      "Name each node once.",
	},
	{
		FailureCode: FailureJobTypeUnsupported,
		Code:        CodeInvalidArgument,
		Meaning:     "the agents of the family do no jobs of this type",
		Retry:       RetryAfterFix,
		Advice:      "Update the agents of the family: the API that took the job is newer than they are.",
	},
	{
		FailureCode: FailureCredentialsMissing,
		Code:        CodeInvalidArgument,
		Meaning:     "the node or the request has no credentials where they are needed",
		Retry:       RetryAfterFix,
		Advice:      "Give the credentials in the request, or register them with UpdateNode.",
	},
	{
		FailureCode: FailureCredentialsUnreadable,
		Code:        CodeFailedPrecondition,
		Meaning:     "the sealed credentials cannot be opened by the process that needs them",
		Retry:       RetryAfterFix,
		Advice: "Give the agent the key of its family that the API seals for (`[keys]`), or register the " +
			"credentials again after a change of keys.",
	},
	{
		FailureCode: FailureEndpointMissing,
		Code:        CodeInvalidArgument,
		Meaning:     "the node has no endpoint of the kind that the operation needs",
		Retry:       RetryAfterFix,
		Advice:      "Register the host endpoint of the node with UpdateNode, with its credentials.",
	},
	{
		FailureCode: FailurePreconditionFailed,
		Code:        CodeFailedPrecondition,
		Meaning:     "the node is not in a state that allows the operation",
		Retry:       RetryAfterFix,
		Advice:      "Read the message for what is to be done first, do it, and send the request again.",
	},
	{
		FailureCode: FailureAgentNotEquipped,
		Code:        CodeFailedPrecondition,
		Meaning:     "the agent is not configured for what the job needs",
		Retry:       RetryAfterFix,
		Advice: "Configure the agents of the family as the message says: access to the catalogue, to host " +
			"operating systems, or a service.",
	},
	{
		FailureCode: FailureNodeBusy,
		Code:        CodeUpdateInProgress,
		Meaning:     "another job or operation holds the node",
		Retry:       RetryAsIs,
		Advice: "Wait for the job that the message names, or send the request with `rackbus-on-busy: " +
			"queue`.",
	},
	{
		FailureCode: FailureCapacity,
		Code:        CodeInternal,
		Meaning:     "the limit of tracked jobs is reached",
		Retry:       RetryAsIs,
		Advice:      "Try again once jobs have ended and expired, or raise `workflows.max_tracked_jobs`.",
	},
	{
		FailureCode: FailureAdmissionFailed,
		Code:        CodeOther,
		Meaning:     "no node of the batch was admitted",
		Retry:       RetryAfterFix,
		Advice:      "Each node of the answer has its own reason: see to those.",
	},
}
