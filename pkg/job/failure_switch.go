// SPDX-License-Identifier: Apache-2.0

package job

// Switches and their fabric.
const (
	FailureSwitchNotReady      FailureCode = "SWITCH_NOT_READY"
	FailureCertificateMaterial FailureCode = "CERTIFICATE_MATERIAL_INVALID"
)

var switchFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureSwitchNotReady,
		Code:        CodeOther,
		Meaning:     "the operating system of a switch did not answer",
		Retry:       RetryAfterInspection,
		Advice:      "Look at the switch over its BMC and serial console; it may still boot.",
	},
	{
		FailureCode: FailureCertificateMaterial,
		Code:        CodeFailedPrecondition,
		Meaning:     "the certificates that the agent is to use for the switch are missing or no good",
		Retry:       RetryAfterFix,
		Advice: "See to the files of the domain in the switch TLS directory of the agent: certificate, key " +
			"and CA.",
	},
}
