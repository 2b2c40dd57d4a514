// SPDX-License-Identifier: Apache-2.0

// Package switchagent runs the agent of NVSwitch trays: it takes their jobs from
// the bus and drives them over NVUE, SSH and SFTP, the gRPC services of the
// fabric, and the Redfish BMC.
package switchagent
