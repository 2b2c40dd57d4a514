// SPDX-License-Identifier: Apache-2.0

package job

// Firmware files, and what becomes of them.
const (
	FailureFileNotFound           FailureCode = "FILE_NOT_FOUND"
	FailureManifestInvalid        FailureCode = "FIRMWARE_MANIFEST_INVALID"
	FailureFileUnreadable         FailureCode = "FILE_UNREADABLE"
	FailureFileChanged            FailureCode = "FILE_CHANGED"
	FailureArtifactDownloadFailed FailureCode = "ARTIFACT_DOWNLOAD_FAILED"
	FailureUploadFailed           FailureCode = "UPLOAD_FAILED"
	FailureWriteProtected         FailureCode = "WRITE_PROTECTED"
	FailureBackgroundCopyPending  FailureCode = "BACKGROUND_COPY_PENDING"
	FailureUpdateAlreadyRunning   FailureCode = "UPDATE_ALREADY_RUNNING"
	FailureActivationFailed       FailureCode = "ACTIVATION_FAILED"
	FailureVersionMismatch        FailureCode = "VERSION_MISMATCH"
	FailureIncompatibleFirmware   FailureCode = "INCOMPATIBLE_FIRMWARE"
	FailureFlashFailed            FailureCode = "FLASH_FAILED"
)

var firmwareFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureFileNotFound,
		Code:        CodeFileNotFound,
		Meaning:     "the firmware file does not exist",
		Retry:       RetryAfterFix,
		Advice: "Put the file into the firmware directory of the API and the agents, which is one shared " +
			"directory.",
	},
	{
		FailureCode: FailureManifestInvalid,
		Code:        CodeInvalidArgument,
		Meaning:     "the manifest of the firmware object cannot be used",
		Retry:       RetryAfterFix,
		Advice:      "Correct the manifest as the message says.",
	},
	{
		FailureCode: FailureFileUnreadable,
		Code:        CodeFileNotFound,
		Meaning:     "the firmware file cannot be read",
		Retry:       RetryAfterFix,
		Advice:      "See to the rights of the file and to the disk or share it lies on.",
	},
	{
		FailureCode: FailureFileChanged,
		Code:        CodeFileNotFound,
		Meaning:     "the firmware file is not the one that was admitted",
		Retry:       RetryAfterFix,
		Advice:      "Find out who changed the file. Send the request again for the file as it should be.",
	},
	{
		FailureCode: FailureArtifactDownloadFailed,
		Code:        CodeClientError,
		Meaning:     "a file of the firmware catalogue could not be downloaded",
		Retry:       RetryAsIs,
		Advice:      "See whether the location and the access token are right, and whether the server is up.",
	},
	{
		FailureCode: FailureUploadFailed,
		Code:        CodeClientError,
		Meaning:     "the file could not be sent to the device",
		Retry:       RetryAsIs,
		Advice:      "Read what the device said. The device has not taken the image.",
	},
	{
		FailureCode: FailureWriteProtected,
		Code:        CodeFailedPrecondition,
		Meaning:     "the component's flash is write protected",
		Retry:       RetryAfterFix,
		Advice:      "Lift the write protection as the vendor says.",
	},
	{
		FailureCode: FailureBackgroundCopyPending,
		Code:        CodeFailedPrecondition,
		Meaning:     "the device is still copying an earlier image",
		Retry:       RetryAsIs,
		Advice:      "Wait until the copy is over, which may take half an hour.",
	},
	{
		FailureCode: FailureUpdateAlreadyRunning,
		Code:        CodeUpdateInProgress,
		Meaning:     "the device is busy with an update that is not ours",
		Retry:       RetryAsIs,
		Advice:      "Find out who runs it, and wait for its end.",
	},
	{
		FailureCode: FailureActivationFailed,
		Code:        CodeOther,
		Meaning:     "the new firmware was written but could not be activated",
		Retry:       RetryAfterInspection,
		Advice: "Power-cycle the node (AUX where it has that) and compare the versions. The image need not " +
			"be sent again.",
	},
	{
		FailureCode: FailureVersionMismatch,
		Code:        CodeOther,
		Meaning:     "after activation the device shows another version than the package",
		Retry:       RetryAfterInspection,
		Advice: "Compare the inventory with the package; an AUX power cycle activates what a restart did " +
			"not.",
	},
	{
		FailureCode: FailureIncompatibleFirmware,
		Code:        CodeFailedPrecondition,
		Meaning:     "there is no single image that fits a device",
		Retry:       RetryAfterFix,
		Advice:      "Give exactly one image for the PSID of each device that the message names.",
	},
	{
		FailureCode: FailureFlashFailed,
		Code:        CodeClientError,
		Meaning:     "an image could not be written to a device",
		Retry:       RetryAfterInspection,
		Advice: "Do not cut the power. Read the output of the tool in the message, and write the image " +
			"again before a restart.",
	},
}
