// SPDX-License-Identifier: Apache-2.0

// Command rackbus-jobs turns events into job records.
package main

import (
	"os"

	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/services/jobs"
)

func main() {
	os.Exit(process.Main(jobs.Program(), os.Args[1:], os.Stdout, os.Stderr))
}
