// SPDX-License-Identifier: Apache-2.0

// Package api is the gRPC front of Rackbus: the published RackManager services
// and the Jobs service, on one port.
//
// It validates, keeps the inventory, admits jobs, asks agents for what only a
// device knows, and reads job records. It touches no hardware and waits for no
// job. Any number of replicas serve the same bus; none keeps state that another
// lacks.
package api
