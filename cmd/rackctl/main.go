// SPDX-License-Identifier: Apache-2.0

// Command rackctl is Rackbus on the command line, for people.
package main

import (
	"os"

	"github.com/rackbus/rackbus/cmd/rackctl/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Terminal(), os.Args[1:]))
}
