// SPDX-License-Identifier: Apache-2.0

// Command racksim simulates the management controllers of a rack. See racksim --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rackbus/rackbus/sim/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
