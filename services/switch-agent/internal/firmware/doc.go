// SPDX-License-Identifier: Apache-2.0

// Package firmware updates the firmware of a switch by component: BMC, FPGA,
// EROT, BIOS, SMA, CPLD, transceivers, and the image of the operating system as
// firmware. One update runs in stages:
//
//	artifacts         waits for files of the firmware catalogue. Repeatable
//	check             versions before the update; what is installed already is left
//	                  out. Repeatable
//	asic              lets an image bring the firmware of the ASIC. Resumable
//	bundle_upload, bundle_fetch, bundle_install, bundle_monitor
//	                  all components of a VR NVL72 switch from one package. What fails
//	                  before the installation began falls back to one by one
//
// then for each component
//
//	upload            sends the file. Repeatable
//	install           begins the installation. Once
//	monitor           follows it, restarts included. Resumable
//
// and at the end
//
//	outcome           a component that failed ends the update here, behind all others
//	activate          power-cycles the switch. Once
//	activate_wait     waits until it was away and is back. Resumable
//	activate_bmc      does so through the BMC, where the switch itself could not be
//	                  asked or did not go down. Once
//	activate_bmc_wait waits for it. Resumable
//	verify            compares the versions. Repeatable
//
// Installations never force: that would restart the switch at once.
package firmware
