// SPDX-License-Identifier: Apache-2.0

// Command racksim simulates the management controllers of a rack. See racksim --help.
package main

import (
	"os"

	"github.com/rackbus/rackbus/sim/internal/command"
)

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }
