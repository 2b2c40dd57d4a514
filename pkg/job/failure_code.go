// SPDX-License-Identifier: Apache-2.0

package job

// FailureCode is a stable upper-case word for one cause of failure. Codes are
// never renamed or given another meaning; workflows may add their own.
type FailureCode string

// Causes of failures.
const (
	FailureAgentLost              FailureCode = "AGENT_LOST"
	FailureDeadlineExceeded       FailureCode = "DEADLINE_EXCEEDED"
	FailureQueueDeadline          FailureCode = "QUEUE_DEADLINE"
	FailureAbandoned              FailureCode = "ABANDONED"
	FailureOutcomeUnknown         FailureCode = "OUTCOME_UNKNOWN"
	FailureCommandLost            FailureCode = "COMMAND_LOST"
	FailureBMCAuthFailed          FailureCode = "BMC_AUTH_FAILED"
	FailureBMCUnreachable         FailureCode = "BMC_UNREACHABLE"
	FailureBMCRefused             FailureCode = "BMC_REFUSED"
	FailureBMCInvalidResponse     FailureCode = "BMC_INVALID_RESPONSE"
	FailureTaskException          FailureCode = "TASK_EXCEPTION"
	FailureTaskLost               FailureCode = "TASK_LOST"
	FailureTaskTimeout            FailureCode = "TASK_TIMEOUT"
	FailureUploadFailed           FailureCode = "UPLOAD_FAILED"
	FailurePreconditionFailed     FailureCode = "PRECONDITION_FAILED"
	FailureInvalidArgument        FailureCode = "INVALID_ARGUMENT"
	FailureTargetNotFound         FailureCode = "TARGET_NOT_FOUND"
	FailureWriteProtected         FailureCode = "WRITE_PROTECTED"
	FailureBackgroundCopyPending  FailureCode = "BACKGROUND_COPY_PENDING"
	FailureUpdateAlreadyRunning   FailureCode = "UPDATE_ALREADY_RUNNING"
	FailureActivationFailed       FailureCode = "ACTIVATION_FAILED"
	FailureVersionMismatch        FailureCode = "VERSION_MISMATCH"
	FailureFileNotFound           FailureCode = "FILE_NOT_FOUND"
	FailureFileChanged            FailureCode = "FILE_CHANGED"
	FailureCancelledByOperator    FailureCode = "CANCELLED_BY_OPERATOR"
	FailureTerminatedByOperator   FailureCode = "TERMINATED_BY_OPERATOR"
	FailureSuperseded             FailureCode = "SUPERSEDED"
	FailureNodeBusy               FailureCode = "NODE_BUSY"
	FailureCapacity               FailureCode = "CAPACITY"
	FailureShuttingDown           FailureCode = "SHUTTING_DOWN"
	FailureParentUnusable         FailureCode = "PARENT_UNUSABLE"
	FailureDuplicateTarget        FailureCode = "DUPLICATE_TARGET"
	FailureAdmissionFailed        FailureCode = "ADMISSION_FAILED"
	FailureChildrenFailed         FailureCode = "CHILDREN_FAILED"
	FailureChildrenStopped        FailureCode = "CHILDREN_STOPPED"
	FailureChildrenTimedOut       FailureCode = "CHILDREN_TIMED_OUT"
	FailureArtifactDownloadFailed FailureCode = "ARTIFACT_DOWNLOAD_FAILED"
	FailurePanic                  FailureCode = "PANIC"
	FailureInternal               FailureCode = "INTERNAL"
	FailurePowerActionFailed      FailureCode = "POWER_ACTION_FAILED"
	FailurePowerStateTimeout      FailureCode = "POWER_STATE_TIMEOUT"
	FailureSwitchNotReady         FailureCode = "SWITCH_NOT_READY"
	FailureHostAuthFailed         FailureCode = "HOST_AUTH_FAILED"
	FailureHostUnreachable        FailureCode = "HOST_UNREACHABLE"
	FailureHostKeyRefused         FailureCode = "HOST_KEY_REFUSED"
	FailureIncompatibleFirmware   FailureCode = "INCOMPATIBLE_FIRMWARE"
	FailureFlashFailed            FailureCode = "FLASH_FAILED"
	FailureValidatorMissing       FailureCode = "VALIDATOR_MISSING"
	FailureValidationFailed       FailureCode = "VALIDATION_FAILED"
	FailureValidationInterrupted  FailureCode = "VALIDATION_INTERRUPTED"
	FailureReleaseFailed          FailureCode = "RELEASE_FAILED"

	// FailureRolloutStopped is that of a child whose wave never came.
	FailureRolloutStopped FailureCode = "ROLLOUT_STOPPED"

	FailureDiagnosticsClassification FailureCode = "NODE_DIAGNOSTICS_CLASSIFICATION_FAILED"
	FailureDiagnosticsStateChanged   FailureCode = "NODE_DIAGNOSTICS_STATE_CHANGED"
	FailureDiagnosticsProvisionState FailureCode = "NODE_DIAGNOSTICS_UNEXPECTED_PROVISION_STATE"
	FailureDiagnosticsStore          FailureCode = "NODE_DIAGNOSTICS_STORE_FAILED"
	FailureIronicImageNotFound       FailureCode = "IRONIC_INSPECTION_IPA_IMAGE_NOT_FOUND"
	FailureIronicDriverMismatch      FailureCode = "IRONIC_DRIVER_MISMATCH"
)

// FailureCodeInfo explains a FailureCode.
type FailureCodeInfo struct {
	FailureCode FailureCode
	Code        ErrorCode
	// Meaning is one line for people.
	Meaning string
}

var failureCodes = [...]FailureCodeInfo{
	{FailureAgentLost, CodeInternal, "no agent that could work on the node is alive"},
	{FailureDeadlineExceeded, CodeTimeout, "the job ran longer than its run limit"},
	{FailureQueueDeadline, CodeTimeout, "no worker took the job before its queue deadline"},
	{FailureAbandoned, CodeInternal, "the worker ended without an outcome, or the job was given up"},
	{FailureOutcomeUnknown, CodeInternal, "interrupted during a hardware change whose effect cannot be known"},
	{FailureCommandLost, CodeInternal, "the stored command of a waiting job is missing"},
	{FailureBMCAuthFailed, CodeUnauthenticated, "the management controller refused the credentials"},
	{FailureBMCUnreachable, CodeClientError, "the management controller did not answer"},
	{FailureBMCRefused, CodeServerError, "the management controller refused the request"},
	{FailureBMCInvalidResponse, CodeInvalidResponse, "the management controller answered something unreadable"},
	{FailureTaskException, CodeOther, "the device's task ended unsuccessfully"},
	{FailureTaskLost, CodeOther, "the device no longer knows its task"},
	{FailureTaskTimeout, CodeTimeout, "the device's task did not end in time"},
	{FailureUploadFailed, CodeClientError, "the file could not be sent to the device"},
	{FailurePreconditionFailed, CodeFailedPrecondition, "the node is not in a state that allows the operation"},
	{FailureInvalidArgument, CodeInvalidArgument, "the request asks for something that cannot be done"},
	{FailureTargetNotFound, CodeTargetNotFound, "the node lacks the component"},
	{FailureWriteProtected, CodeFailedPrecondition, "the component's flash is write protected"},
	{FailureBackgroundCopyPending, CodeFailedPrecondition, "the device is still copying an earlier image"},
	{FailureUpdateAlreadyRunning, CodeUpdateInProgress, "the device is busy with an update that is not ours"},
	{FailureActivationFailed, CodeOther, "the new firmware was written but could not be activated"},
	{FailureVersionMismatch, CodeOther, "after activation the device shows another version than the package"},
	{FailureFileNotFound, CodeFileNotFound, "the firmware file does not exist"},
	{FailureFileChanged, CodeFileNotFound, "the firmware file is not the one that was admitted"},
	{FailureCancelledByOperator, CodeOther, "stopped at a safe point on request"},
	{FailureTerminatedByOperator, CodeOther, "cut by force on request; the hardware state is unknown"},
	{FailureSuperseded, CodeOther, "a newer job took its place before it started"},
	{FailureNodeBusy, CodeUpdateInProgress, "another job or operation holds the node"},
	{FailureCapacity, CodeInternal, "the limit of tracked jobs is reached"},
	{FailureShuttingDown, CodeInternal, "the service is shutting down"},
	{FailureParentUnusable, CodeInternal, "the parent takes no further children"},
	{FailureDuplicateTarget, CodeInvalidArgument, "the request names the node twice"},
	{FailureAdmissionFailed, CodeOther, "no node of the batch was admitted"},
	{FailureChildrenFailed, CodeOther, "children of the batch failed"},
	{FailureChildrenStopped, CodeOther, "every child of the batch was stopped"},
	{FailureChildrenTimedOut, CodeTimeout, "every child of the batch passed its deadline"},
	{FailureArtifactDownloadFailed, CodeClientError, "a file of the firmware catalogue could not be downloaded"},
	{FailurePanic, CodeInternal, "the workflow crashed"},
	{FailureInternal, CodeInternal, "a fault inside Rackbus"},
	{FailurePowerActionFailed, CodeOther, "a device did not take a power action"},
	{FailurePowerStateTimeout, CodeOther, "devices did not reach a power state in time"},
	{FailureSwitchNotReady, CodeOther, "the operating system of a switch did not answer"},
	{FailureHostAuthFailed, CodeUnauthenticated, "the host operating system refused the credentials"},
	{FailureHostUnreachable, CodeClientError, "the host operating system did not answer"},
	{FailureHostKeyRefused, CodeFailedPrecondition, "the host operating system showed a key that is not trusted"},
	{FailureIncompatibleFirmware, CodeFailedPrecondition, "there is no single image that fits a device"},
	{FailureFlashFailed, CodeClientError, "an image could not be written to a device"},
	{FailureValidatorMissing, CodeFailedPrecondition, "no validator is configured"},
	{FailureValidationFailed, CodeOther, "the validator found faults or could not run"},
	{FailureValidationInterrupted, CodeInternal, "the agent died during a validation, which was not begun again"},
	{FailureReleaseFailed, CodeOther, "the node could not be released after a validation"},
	{FailureRolloutStopped, CodeOther, "the rollout of the batch stopped before it came to the node"},
	{FailureDiagnosticsClassification, CodeOther, "what the diagnosis of a node needs could not be collected"},
	{FailureDiagnosticsStateChanged, CodeFailedPrecondition, "the node changed its state while it was examined"},
	{FailureDiagnosticsProvisionState, CodeFailedPrecondition, "the node is not in a provision state in which it may be examined"},
	{FailureDiagnosticsStore, CodeInternal, "the evidence bundle of a diagnosis could not be stored"},
	{FailureIronicImageNotFound, CodeFailedPrecondition, "the kernel or ramdisk of the Ironic inspection image is missing"},
	{FailureIronicDriverMismatch, CodeFailedPrecondition, "Ironic cannot cycle the node's power with the driver it has"},
}

// FailureCodes returns every known code with its meaning, in a fresh slice.
func FailureCodes() []FailureCodeInfo {
	return append([]FailureCodeInfo(nil), failureCodes[:]...)
}

// Info explains the code, and returns false for an unknown one.
func (c FailureCode) Info() (FailureCodeInfo, bool) {
	for i := range failureCodes {
		if failureCodes[i].FailureCode == c {
			return failureCodes[i], true
		}
	}
	return FailureCodeInfo{}, false
}

// ErrorCode returns the class the code belongs to; an unknown code is CodeOther.
func (c FailureCode) ErrorCode() ErrorCode {
	if info, ok := c.Info(); ok {
		return info.Code
	}
	return CodeOther
}
