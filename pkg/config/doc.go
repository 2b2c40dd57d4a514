// SPDX-License-Identifier: Apache-2.0

// Package config reads the one configuration file all processes share.
//
// Values come from the defaults, then the TOML file, then environment variables
// (RACKBUS_SECTION__KEY), then flags; the later wins. An unknown key is an
// error, and all faults are reported together. The doc comments of the structs
// in this package are the reference that users read: see Reference.
package config
