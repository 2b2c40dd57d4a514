// SPDX-License-Identifier: Apache-2.0

package job

// Why there is no connection to a device.
const (
	FailureBMCUnreachable           FailureCode = "BMC_UNREACHABLE"
	FailureHostUnreachable          FailureCode = "HOST_UNREACHABLE"
	FailureNameUnresolved           FailureCode = "DEVICE_NAME_UNRESOLVED"
	FailureDeviceTimeout            FailureCode = "DEVICE_TIMEOUT"
	FailureCertificateUntrusted     FailureCode = "DEVICE_CERTIFICATE_UNTRUSTED"
	FailureCertificateName          FailureCode = "DEVICE_CERTIFICATE_NAME"
	FailureClientCertificateRefused FailureCode = "CLIENT_CERTIFICATE_REFUSED"
	FailureTLSFailed                FailureCode = "TLS_FAILED"
	FailureHostSSHIncompatible      FailureCode = "HOST_SSH_INCOMPATIBLE"
	FailureHostKeyRefused           FailureCode = "HOST_KEY_REFUSED"
	FailureHostRefused              FailureCode = "HOST_REFUSED"
	FailureBMCAuthFailed            FailureCode = "BMC_AUTH_FAILED"
	FailureHostAuthFailed           FailureCode = "HOST_AUTH_FAILED"
)

var linkFailures = [...]FailureCodeInfo{
	{
		FailureCode: FailureBMCUnreachable,
		Code:        CodeClientError,
		Meaning:     "the management controller cannot be connected to, or was not up in time",
		Retry:       RetryAsIs,
		Advice: "See whether the address is right and the controller is up, and look for losses on the " +
			"management network.",
	},
	{
		FailureCode: FailureHostUnreachable,
		Code:        CodeClientError,
		Meaning:     "the host or switch operating system cannot be connected to, or was not up in time",
		Retry:       RetryAsIs,
		Advice: "See whether the address is right and the system is up, and look for losses on the " +
			"management network.",
	},
	{
		FailureCode: FailureNameUnresolved,
		Code:        CodeClientError,
		Meaning:     "the host name of the device cannot be resolved",
		Retry:       RetryAfterFix,
		Advice:      "Correct the name of the endpoint, or its entry in the DNS that the agent asks.",
	},
	{
		FailureCode: FailureDeviceTimeout,
		Code:        CodeClientError,
		Meaning:     "the device, or the way to it, did not answer in time",
		Retry:       RetryAsIs,
		Advice:      "Look for a firewall that drops packets, and for a device that hangs: it may need a reset.",
	},
	{
		FailureCode: FailureCertificateUntrusted,
		Code:        CodeClientError,
		Meaning:     "the certificate of the device is not one that is trusted",
		Retry:       RetryAfterFix,
		Advice: "Install a certificate of the trusted CA on the device, or give the agent the CA; look " +
			"whether it has expired.",
	},
	{
		FailureCode: FailureCertificateName,
		Code:        CodeClientError,
		Meaning:     "the certificate of the device is for another name",
		Retry:       RetryAfterFix,
		Advice: "Register the device with the name its certificate has, or install one for the registered " +
			"name. Make sure that it is the right device.",
	},
	{
		FailureCode: FailureClientCertificateRefused,
		Code:        CodeClientError,
		Meaning:     "the device did not accept the certificate of the agent",
		Retry:       RetryAfterFix,
		Advice: "Give the agent a certificate of the CA that the device trusts, or bind that CA on the " +
			"device.",
	},
	{
		FailureCode: FailureTLSFailed,
		Code:        CodeClientError,
		Meaning:     "no TLS connection to the device came about",
		Retry:       RetryAfterFix,
		Advice:      "See whether the port is right and speaks TLS 1.2 or newer.",
	},
	{
		FailureCode: FailureHostSSHIncompatible,
		Code:        CodeClientError,
		Meaning:     "the SSH server offers no algorithm that is allowed",
		Retry:       RetryAfterFix,
		Advice:      "Update the system of the device, or allow the legacy algorithms that the message names.",
	},
	{
		FailureCode: FailureHostKeyRefused,
		Code:        CodeFailedPrecondition,
		Meaning:     "the SSH server showed a key that is not trusted",
		Retry:       RetryAfterFix,
		Advice:      "Find out why the key changed. If the system was installed anew, replace the recorded key.",
	},
	{
		FailureCode: FailureHostRefused,
		Code:        CodeClientError,
		Meaning:     "the SSH server refused a session or a file",
		Retry:       RetryAfterFix,
		Advice:      "Read the message: often the disk of the device is full, or too many sessions are open.",
	},
	{
		FailureCode: FailureBMCAuthFailed,
		Code:        CodeUnauthenticated,
		Meaning:     "the management controller refused the credentials",
		Retry:       RetryAfterFix,
		Advice: "Register the right credentials with UpdateNode. Repeating the job as it is may lock the " +
			"account.",
	},
	{
		FailureCode: FailureHostAuthFailed,
		Code:        CodeUnauthenticated,
		Meaning:     "the host or switch operating system refused the credentials",
		Retry:       RetryAfterFix,
		Advice: "Register the right credentials with UpdateNode. Repeating the job as it is may lock the " +
			"account.",
	},
}
