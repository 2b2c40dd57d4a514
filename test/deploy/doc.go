// SPDX-License-Identifier: Apache-2.0

// Package deploy tests what deploy/ ships: the accounts and configurations of
// nats-server with real servers and the real processes, the units of systemd,
// and the container files.
package deploy
