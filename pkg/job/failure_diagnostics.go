// SPDX-License-Identifier: Apache-2.0

package job

// Runs of node diagnostics. A run may carry a failure signature as well.
const (
	FailureDiagnosticsClassification FailureCode = "NODE_DIAGNOSTICS_CLASSIFICATION_FAILED"
	FailureDiagnosticsStateChanged   FailureCode = "NODE_DIAGNOSTICS_STATE_CHANGED"
	FailureDiagnosticsProvisionState FailureCode = "NODE_DIAGNOSTICS_UNEXPECTED_PROVISION_STATE"
	FailureDiagnosticsStore          FailureCode = "NODE_DIAGNOSTICS_STORE_FAILED"
)

var diagnosticsFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureDiagnosticsClassification,
		Code:        CodeOther,
		Meaning:     "what the diagnosis of a node needs could not be collected",
		Retry:       RetryAfterFix,
		Advice: "See to the required collectors that the message names; what the others found is in the " +
			"bundle.",
	},
	{
		FailureCode: FailureDiagnosticsStateChanged,
		Code:        CodeFailedPrecondition,
		Meaning:     "the node changed its state while it was examined",
		Retry:       RetryAsIs,
		Advice:      "Examine it again once nobody works on it.",
	},
	{
		FailureCode: FailureDiagnosticsProvisionState,
		Code:        CodeFailedPrecondition,
		Meaning:     "the node is not in a provision state in which it may be examined",
		Retry:       RetryAfterFix,
		Advice:      "Bring the node into one of the states that the message names.",
	},
	{
		FailureCode: FailureDiagnosticsStore,
		Code:        CodeInternal,
		Meaning:     "the evidence bundle of a diagnosis could not be stored",
		Retry:       RetryAsIs,
		Advice:      "See to the object store of the bus: its size, its limits and the agent's rights.",
	},
}
