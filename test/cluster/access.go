// SPDX-License-Identifier: Apache-2.0

package cluster

// BusURLs are where the brokers listen; they want TLS from the first byte on.
func (c *Cluster) BusURLs() []string { return c.busURLs }

// Certificate returns the files of a role's certificate and its key, and of the roots of all certificates.
func (c *Cluster) Certificate(role string) (cert, key, roots string) {
	return c.certFile(role + ".crt"), c.certFile(role + ".key"), c.certFile("ca.crt")
}
