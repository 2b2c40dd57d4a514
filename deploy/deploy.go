// SPDX-License-Identifier: Apache-2.0

// Package deploy carries the configurations of nats-server in the program, so that
// rackctl bootstrap can write them where no checkout is.
package deploy

import "embed"

// Files are the configurations of nats-server, below nats/.
//
//go:embed nats/*.conf
var Files embed.FS
