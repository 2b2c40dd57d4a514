// SPDX-License-Identifier: Apache-2.0

// Package deploy carries the files with which Rackbus is installed, so that
// rackctl bootstrap can write them where no checkout is.
package deploy

import "embed"

// Files are the configurations of nats-server below nats/, and the units,
// users and directories for systemd below systemd/.
//
//go:embed nats/*.conf systemd/*.service systemd/*.conf
var Files embed.FS
