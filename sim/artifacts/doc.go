// SPDX-License-Identifier: Apache-2.0

// Package artifacts is an HTTP or HTTPS server for firmware files that can go wrong in named ways, and a helper for
// the trees that file:// locations point into.
//
//	server, err := artifacts.Start(ctx, artifacts.Options{Token: "t0ken"})
//	defer server.Close()
//	server.Put("fw/hmc_1.fwpkg", content)
//	server.AddFault("fw/*", artifacts.Fault{CutAfter: 1000, Remaining: 1})
//	... server.URL("fw/hmc_1.fwpkg"), server.WaitSent(ctx, "fw/hmc_1.fwpkg", 500), server.Requests()
//
// Files have an ETag, a Last-Modified and support HEAD, ranges and If-Range, unless a fault says otherwise. A fault
// applies to the paths that its pattern matches (* stays within a path segment, ** does not), in the order in which
// faults were added, the first one that matches wins, and each up to a number of times.
package artifacts
