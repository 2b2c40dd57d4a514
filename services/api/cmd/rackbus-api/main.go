// SPDX-License-Identifier: Apache-2.0

// Command rackbus-api serves the gRPC API.
package main

import (
	"os"

	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/services/api"
)

func main() {
	os.Exit(process.Main(api.Program(), os.Args[1:], os.Stdout, os.Stderr))
}
