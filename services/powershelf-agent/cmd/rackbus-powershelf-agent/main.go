// SPDX-License-Identifier: Apache-2.0

// Command rackbus-powershelf-agent drives power shelves.
package main

import (
	"os"

	"github.com/rackbus/rackbus/pkg/process"
	powershelfagent "github.com/rackbus/rackbus/services/powershelf-agent"
)

func main() {
	os.Exit(process.Main(powershelfagent.Program(), os.Args[1:], os.Stdout, os.Stderr))
}
