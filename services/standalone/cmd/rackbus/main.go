// SPDX-License-Identifier: Apache-2.0

// Command rackbus runs all of Rackbus in one process, and makes its keys.
package main

import (
	"os"

	"github.com/rackbus/rackbus/services/standalone"
)

func main() {
	os.Exit(standalone.Main(os.Args[1:], os.Stdout, os.Stderr))
}
