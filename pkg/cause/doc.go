// SPDX-License-Identifier: Apache-2.0

// Package cause finds the failure code of a job, and what the device said, in the
// errors of the transports: connections, Redfish and SSH.
package cause
