// SPDX-License-Identifier: Apache-2.0

// Package bmc simulates one management controller: its Redfish resource tree, its state, and what requests do to it.
//
// A [Blueprint] holds what all devices of a model share; a [Device] made from it holds only what differs. A Device
// is an http.Handler and can be driven directly as well. Things that take time (tasks, outages, power transitions)
// are settled when somebody looks, so an idle device costs neither goroutines nor timers.
//
// # What an upload changes
//
// The file is recognised by package firmwarepackage; only its first 64 KiB are looked at.
//
// On compute trays the scope comes from Targets: an inventory URI names one component, Chassis/HGX_Chassis_0 names
// all HGX_ components. Without Targets, a package whose version, file name or component names carry an HGX marker
// (HGX, HMC, P4059, P4109, P4764, P4974, P4975, GB200-NVL4) is one for the HGX_ components, any other for the rest.
// Within the scope, an image goes to the components whose name it carries: the inventory name itself (HGX_FW_GPU_0),
// that name without HGX_, FW_ and the index (GPU), and the usual names HMC and BMC for the controllers, SBIOS for
// CPU (on VR trays the SBIOS entries), SMR for FPGA, CX9 for CX, ERoT for every ERoT. A package with a single image goes to all components that Targets names.
// An image with a SKU goes only to those of several alike components that have this SKU. A raw file goes to the
// components that Targets names, else to FW_BMC_0 (BMC on Lenovo trays) or HGX_FW_BMC_0. When nothing matches, the
// task completes with a warning that no device matched. Lenovo trays take the scope from OemParameters.
//
// On power shelves images named PMC, MCU and PSU (or archives with such a purpose, or raw files with such a name)
// go to the controller, the MCU (LiteOn only) and all supplies; a Delta package whose first descriptor is the
// controller's UUID goes to the controller, with the package version. A supply version of four hex digits, F1F1, is
// shown as "0xf1 / 0xf1" by LiteOn, and as "f1f1f1f1" by Delta.
//
// A file that tells no version gets "raw-" and the first eight hex digits of its SHA-256.
//
// # When it becomes visible
//
// The versions of a completed task are pending, and the inventory shows the old ones, until activation: on compute
// an AUX power cycle or a host power cycle (PowerCycle, or Off and On); on shelves a manager reset. Supplies, and
// shelf controllers under ApplyTime Immediate, change when their task completes: LiteOn controllers restart then,
// Delta's at 60 %. The BMC of a Supermicro tray restarts with its new version at the end of its task, which is gone
// afterwards.
package bmc
