// SPDX-License-Identifier: Apache-2.0

// Command rackbus-switch-agent drives NVSwitch trays.
package main

import (
	"os"

	"github.com/rackbus/rackbus/pkg/process"
	switchagent "github.com/rackbus/rackbus/services/switch-agent"
)

func main() {
	os.Exit(process.Main(switchagent.Program(), os.Args[1:], os.Stdout, os.Stderr))
}
