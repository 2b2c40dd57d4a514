// SPDX-License-Identifier: Apache-2.0

// Package fabric drives the scale-up fabric of NVSwitch trays: the cluster that
// makes trays one fabric, the app nmx-controller that manages it on one of them,
// and the app's gRPC service.
//
// A Cluster holds the steps for one switch. Each looks first and changes nothing
// when the switch is as wanted, so that a workflow may repeat it after a crash.
//
// A Workflow runs the two jobs: the reconciliation of a whole fabric and the reset
// of a controller. Answers serves the synchronous operations.
package fabric
