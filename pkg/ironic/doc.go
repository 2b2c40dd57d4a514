// SPDX-License-Identifier: Apache-2.0

// Package ironic reads what OpenStack Ironic knows of a node, for its diagnosis: its
// provision and power state, why it failed last, its history, ports, traits,
// allocation and inventory, and the conductors. It never changes anything.
//
// Ironic gives no codes for its errors. So this package, and no rule, knows the words
// in its texts: Problems turns them into codes, at which rules look.
package ironic
