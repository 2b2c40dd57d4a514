// SPDX-License-Identifier: Apache-2.0

// Package flash has the words in which it is said how firmware packages get onto
// a device: the package as a request names it, how it is pushed, which packages
// come into force together, and the Rule by which a product leaves the ways of
// its family. Products write their rules in these words, flashplan makes plans of
// them. The package is pure and knows no product.
package flash
