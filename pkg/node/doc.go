// SPDX-License-Identifier: Apache-2.0

// Package node says what a managed node is: its identity, its type and family,
// how a request names a type, and which endpoints it must bring. The types are the
// rows of pkg/product. The package is pure: it knows neither protobuf nor the bus.
package node
