// SPDX-License-Identifier: Apache-2.0

// Package flashplan decides how firmware packages get onto a node: in which
// order, in which groups with an activation behind them, and with which Redfish
// targets and vendor parameters. It only looks at names, so that whoever accepts
// a request refuses what the agent would refuse.
//
// Node types are rows of pkg/product. The rules of their families are here; where a
// row has a flash.Rule of its own, it is asked first. The order of the packages stands as given, except where
// a product needs another one: Supermicro trays take HMC, BIOS and BMC in this
// order, and network devices that are flashed from the host go first. NVIDIA
// advises HMC before BMC; a firmware object is applied in that order, a direct
// update in its own, and the plan notes it.
package flashplan
