// SPDX-License-Identifier: Apache-2.0

// Package nvswitch simulates an NVLink switch tray: one state behind NVUE over HTTPS, SSH with exec, terminal and SFTP,
// the NMX controller and gNMI over gRPC, and a Redfish BMC. All are real sockets on one IP address.
//
// # Ports
//
// NVUE, SSH and the BMC have a port each and listen while the switch is up, the BMC always. The controller's port is
// open only while the cluster is enabled, the app runs and its manager interface is on; the telemetry app's likewise;
// gNMI's while the server is enabled. A port that is not open refuses connections.
//
// # Time
//
// What takes time (applies, actions, installs, reboots) is on an agenda that is settled when somebody looks and by one
// timer, so an idle switch costs no goroutine besides its listeners. [Timing] says how long everything takes.
//
// # Reboots
//
// A reboot shuts all listeners but the BMC's for Timing.Reboot. Then the running configuration is the saved one,
// the current image is the next one, actions, unapplied revisions and /tmp are gone, and apps start anew.
package nvswitch
