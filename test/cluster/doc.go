// SPDX-License-Identifier: Apache-2.0

// Package cluster runs Rackbus as it is deployed: nats-server, API, jobs service and agents as processes of their own,
// tied by mutual TLS, in front of a simulated rack. Tests kill, freeze and restart the processes, call the API as its
// clients do, and ask the simulated devices and the store of the broker what has really happened.
package cluster
