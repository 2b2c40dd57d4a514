// SPDX-License-Identifier: Apache-2.0

package config

// Auth says which callers may do what, by the names in their client certificates;
// docs/access.md tells how patterns are written. A caller that several patterns
// name has the highest of their roles.
type Auth struct {
	// Role of callers that no pattern names: none, viewer, operator or admin. Also that of all callers without TLS.
	DefaultRole string `koanf:"default_role"`
	// Callers that may only read: patterns such as `spiffe://example.org/ns/*/sa/dashboard`, `dns:*.mon.example.net`, `email:*@example.net`, `cn:dashboard-*`.
	Viewers []string `koanf:"viewers"`
	// Callers that may also change hardware, jobs and inventory.
	Operators []string `koanf:"operators"`
	// Callers that may also act beside running jobs and read the audit.
	Admins []string `koanf:"admins"`
}
