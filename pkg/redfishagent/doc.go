// SPDX-License-Identifier: Apache-2.0

// Package redfishagent is what the agents of Redfish devices share: the
// firmware update workflow, and the answers to synchronous queries. Compute
// trays and power shelves differ in their profile (package redfish), not here.
package redfishagent
