// SPDX-License-Identifier: Apache-2.0

// Package product is the table of all hardware that is supported: one row per
// node type, with everything that makes nodes of the type what they are. A row
// says what the type is (for pkg/node), how its management controller is driven
// (for pkg/redfish), where packages leave the ways of its family (for
// pkg/firmware/flashplan), and which components of manifests it takes (for
// pkg/firmware/manifest). These packages do the work and ask the table; none of
// them lists node types.
//
// The rows stand in table.go. What products of one family share is written once,
// in trays.go, shelves.go and switches.go. What is one vendor's is in a file of its
// name, which tells on which device it was seen (delta.go, lenovo.go, liteon.go,
// supermicro.go). The words of the rows are in product.go, redfish.go and
// component.go, and in pkg/firmware/flash.
//
// The package is pure: it does no I/O, and its rows never change.
// docs/adding-hardware.md adds a product step by step.
package product
