// SPDX-License-Identifier: Apache-2.0

// Package e2e holds scenarios over the programs as they are deployed: API, jobs service, two agents and nats-server as
// separate processes over mutual TLS, in front of simulated racks.
package e2e
