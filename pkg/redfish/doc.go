// SPDX-License-Identifier: Apache-2.0

// Package redfish drives the BMCs of compute trays and the controllers of power
// shelves over Redfish.
//
// A Client talks to one device. It knows nothing of jobs, buses or databases:
// every exported method is one building block (read the power state, upload an
// image, look at a task once, wait for a manager to come back) that a workflow
// calls between its checkpoints.
//
// # Who may change the device
//
// Every request other than GET and HEAD passes the Guard given to New, inside
// the transport, right before its first byte and before every further chunk of
// its body. A Client without a Guard can read but not change anything.
//
// # What an error tells
//
// Methods return *Error for everything that went wrong on the wire. Its Code is
// one of a small set, Status, MessageID and Message are the device's own words,
// and OutcomeUnknown says whether a change may have happened although no usable
// answer came back. Credentials never appear in it.
//
// # Decoding
//
// Devices answer with numbers as "N/A", links as objects or strings, and missing
// keys. A field that cannot be read costs that field, never its resource. Enum
// and message types are those of github.com/stmcginnis/gofish/schemas; its
// resource decoders and its HTTP client are not used, because the former lose a
// whole resource to one odd field and the latter drops the headers of failed
// answers (Retry-After) and reads bodies without a limit.
//
// # Products
//
// Differences between products are data: a Profile is the part of a row of
// pkg/product that concerns this package. What a vendor does in a way of its own
// stands in one file of the vendor's name (delta.go, lenovo.go, liteon.go) behind
// a value of product.PowerStyle, product.ConfigurationKeeping or a path of the
// Profile. Nothing else asks for a vendor.
//
// # Versions
//
// Packages and inventories name components differently. MatchPackages finds what
// each inventory entry should read once packages are in force, by name, type and
// SKU; CompareVersions compares that with what it reads.
package redfish
