// SPDX-License-Identifier: Apache-2.0

// Package device opens one NVSwitch tray for a workflow or a query: its NVUE
// interface, its operating system over SSH, the addresses of its gRPC services,
// and the Redfish BMC where it has one. It also says how an error of any of them
// is told in a job's record and in the answer to a query.
//
// Opening sends nothing. Addresses that no switch has (loopback, multicast,
// link-local) are refused, since the credentials of a switch would go there.
package device
