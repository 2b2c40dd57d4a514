// SPDX-License-Identifier: Apache-2.0

package job

// What Ironic says of a node.
const (
	FailureIronicImageNotFound  FailureCode = "IRONIC_INSPECTION_IPA_IMAGE_NOT_FOUND"
	FailureIronicDriverMismatch FailureCode = "IRONIC_DRIVER_MISMATCH"
)

var ironicFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureIronicImageNotFound,
		Code:        CodeFailedPrecondition,
		Meaning:     "the kernel or ramdisk of the Ironic inspection image is missing",
		Retry:       RetryAfterFix,
		Advice: "Check the architecture of the node, its overrides of deploy kernel and ramdisk, and the " +
			"artifacts on every conductor. Then retry with one node.",
	},
	{
		FailureCode: FailureIronicDriverMismatch,
		Code:        CodeFailedPrecondition,
		Meaning:     "a power cycle was asked of a node whose Ironic driver is not ipmi",
		Retry:       RetryAfterFix,
		Advice:      "Change the driver of the node to ipmi first; the power cycle fails again until then.",
	},
}
