// SPDX-License-Identifier: Apache-2.0

// Command rackbus-compute-agent drives compute trays.
package main

import (
	"os"

	"github.com/rackbus/rackbus/pkg/process"
	computeagent "github.com/rackbus/rackbus/services/compute-agent"
)

func main() {
	os.Exit(process.Main(computeagent.Program(), os.Args[1:], os.Stdout, os.Stderr))
}
