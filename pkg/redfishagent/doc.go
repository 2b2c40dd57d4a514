// SPDX-License-Identifier: Apache-2.0

// Package redfishagent is what the agents of Redfish devices share: the
// firmware update workflow, and the answers to synchronous queries. Compute
// trays and power shelves differ in their profile (package redfish) and in their
// plan (package flashplan), not here.
//
// The plan puts the packages of an update into groups. An update runs in stages:
//
//	artifacts        waits for files of the firmware catalogue. Repeatable
//	recover          one AUX cycle for a BMC that does not answer, where the update
//	                 would take the host down anyway and nothing was sent. Once
//	recover_power    brings the host on again. Resumable
//
// then for each package of a group
//
//	check            the file, the expected inventory, write protection, background
//	                 copies, foreign updates; a package that the device has already
//	                 is skipped. Repeatable
//	preserve         makes a BMC keep its configuration (Lenovo). Repeatable
//	upload           sends the image once; whoever takes over looks for its task,
//	                 its versions or its supplies first. Once
//	install          follows the device's task; one that is gone is judged by
//	                 versions. Resumable
//	repair           updates LiteOn supplies one by one which did not take the image
//	                 together; each is looked at before it gets another. Resumable
//
// and at the end of the group
//
//	activate_        the steps of the product; taking the host down and the AUX
//	                 cycle, or the controller's restart, are one stage. Once
//	host_ready       the host's operating system is up (GB200). Repeatable
//	verify           compares the installed versions with the package. Repeatable
//
// A group that is flashed from the host brings stages of its own (InBand).
//
// A job is cancelled in artifacts, check, preserve and verify at once, between two
// supplies, and between stages where the node is at rest: not while the device
// installs, and not while the host is down.
package redfishagent
