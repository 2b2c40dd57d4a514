// SPDX-License-Identifier: Apache-2.0

// Package flint updates the network devices of a GB200 tray from its host
// operating system, with NVIDIA's tools mst and flint over SSH.
//
// The work is a list of stages that the update workflow of package redfishagent
// puts before and behind its activation. Nothing is flashed before every device
// has been found, counted, and matched with one image by its PSID. A host that
// cannot be worked with gets one AUX power cycle, and only before anything was
// flashed: afterwards a cycle would bring half the devices into force. A device is
// never flashed again when it shows the new version, whoever flashed it.
//
// Reading what the tools print and choosing images are pure functions.
package flint
