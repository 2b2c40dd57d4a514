// SPDX-License-Identifier: Apache-2.0

package job

// Power, host operating systems and validations.
const (
	FailurePowerActionFailed     FailureCode = "POWER_ACTION_FAILED"
	FailurePowerStateTimeout     FailureCode = "POWER_STATE_TIMEOUT"
	FailureHostToolsMissing      FailureCode = "HOST_TOOLS_MISSING"
	FailureValidatorMissing      FailureCode = "VALIDATOR_MISSING"
	FailureValidationFailed      FailureCode = "VALIDATION_FAILED"
	FailureValidationInterrupted FailureCode = "VALIDATION_INTERRUPTED"
)

var hostFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailurePowerActionFailed,
		Code:        CodeOther,
		Meaning:     "a device did not take a power action",
		Retry:       RetryAfterInspection,
		Advice: "Read what the device said, and look at the power states of the rack before the next " +
			"action.",
	},
	{
		FailureCode: FailurePowerStateTimeout,
		Code:        CodeOther,
		Meaning:     "devices did not reach a power state in time",
		Retry:       RetryAfterInspection,
		Advice:      "Look at the devices that the message names, and at what feeds them.",
	},
	{
		FailureCode: FailureHostToolsMissing,
		Code:        CodeFailedPrecondition,
		Meaning:     "the host operating system lacks the firmware tools",
		Retry:       RetryAfterFix,
		Advice:      "Install NVIDIA's firmware tools (mst and flint) on the host.",
	},
	{
		FailureCode: FailureValidatorMissing,
		Code:        CodeFailedPrecondition,
		Meaning:     "no validator is configured",
		Retry:       RetryAfterFix,
		Advice:      "Configure the validator of the compute agents.",
	},
	{
		FailureCode: FailureValidationFailed,
		Code:        CodeOther,
		Meaning:     "the validator found faults or could not run",
		Retry:       RetryAfterFix,
		Advice:      "Read the report in the result.",
	},
	{
		FailureCode: FailureValidationInterrupted,
		Code:        CodeInternal,
		Meaning:     "the agent died during a validation, which was not begun again",
		Retry:       RetryAsIs,
		Advice:      "Make sure that nothing of the validation still runs on the node, then begin it again.",
	},
}
