// SPDX-License-Identifier: Apache-2.0

// Package redfishagent is what the agents of Redfish devices share: the
// firmware update workflow, and the answers to synchronous queries. Compute
// trays and power shelves differ in their profile (package redfish), not here.
//
// An update runs in stages, in this order, the first three for each package:
//
//	check      the file, write protection, background copies, foreign updates;
//	           a package that the device has already is skipped
//	upload     sends the image once; whoever takes over looks for its task first
//	install    follows the device's task; one that is gone is judged by versions
//	activate_  the steps of the product; taking the host down and the AUX cycle,
//	           or the controller's restart, are one stage that happens once
//	verify     compares the installed versions with the package (compute only)
//
// A job is cancelled in check and verify at once, and between stages where the
// node is at rest: not while the device installs, and not while the host is down.
package redfishagent
