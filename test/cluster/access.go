// SPDX-License-Identifier: Apache-2.0

package cluster

// BusURLs are where the brokers listen; they want TLS from the first byte on.
func (c *Cluster) BusURLs() []string { return c.busURLs }
