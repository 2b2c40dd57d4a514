// SPDX-License-Identifier: Apache-2.0

// Package hardware keeps the table of docs/hardware.md: what is shown of each node type, and by which test.
//
//	go test ./test/hardware -args -hardware.update   writes the table
//	go test ./test/hardware -timeout=0 -args -hardware.run   runs every test that it names
package hardware
