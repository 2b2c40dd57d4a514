// SPDX-License-Identifier: Apache-2.0

package job

// What a device said, or what became of its task.
const (
	FailureBMCRefused          FailureCode = "BMC_REFUSED"
	FailureBMCInvalidResponse  FailureCode = "BMC_INVALID_RESPONSE"
	FailureTaskException       FailureCode = "TASK_EXCEPTION"
	FailureTaskLost            FailureCode = "TASK_LOST"
	FailureTaskTimeout         FailureCode = "TASK_TIMEOUT"
	FailureTargetNotFound      FailureCode = "TARGET_NOT_FOUND"
	FailureInventoryIncomplete FailureCode = "INVENTORY_INCOMPLETE"
)

var deviceFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureBMCRefused,
		Code:        CodeServerError,
		Meaning:     "the device refused the request",
		Retry:       RetryAfterFix,
		Advice: "Read what the device said and its resolution. Statuses from 500 on often pass after a " +
			"reset of the controller.",
	},
	{
		FailureCode: FailureBMCInvalidResponse,
		Code:        CodeInvalidResponse,
		Meaning:     "the device answered something unreadable",
		Retry:       RetryAfterFix,
		Advice:      "Look at the answer in the diagnosis; a reset of the controller or newer firmware may help.",
	},
	{
		FailureCode: FailureTaskException,
		Code:        CodeOther,
		Meaning:     "the device's task ended unsuccessfully",
		Retry:       RetryAfterInspection,
		Advice:      "Read what the device said and its resolution; diagnose the node before the next try.",
	},
	{
		FailureCode: FailureTaskLost,
		Code:        CodeOther,
		Meaning:     "the device no longer knows its task",
		Retry:       RetryAfterInspection,
		Advice:      "Look at the versions or the state of the device for whether the task had its effect.",
	},
	{
		FailureCode: FailureTaskTimeout,
		Code:        CodeTimeout,
		Meaning:     "the device's task did not end in time",
		Retry:       RetryAfterInspection,
		Advice: "Look whether the task still runs, and wait for it. A power cycle during it may break the " +
			"device.",
	},
	{
		FailureCode: FailureTargetNotFound,
		Code:        CodeTargetNotFound,
		Meaning:     "the node lacks the component",
		Retry:       RetryAfterFix,
		Advice: "Compare the request with the inventory of the node. A component that should be there may " +
			"be broken or unplugged.",
	},
	{
		FailureCode: FailureInventoryIncomplete,
		Code:        CodeFailedPrecondition,
		Meaning:     "the node does not show all components that its profile promises",
		Retry:       RetryAfterFix,
		Advice:      "See to the components that the message names, or correct the profile.",
	},
}
