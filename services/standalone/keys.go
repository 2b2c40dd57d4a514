// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/rackbus/rackbus/pkg/certs"
	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
)

// tlsDir is the part of a key directory that holds certificates.
const tlsDir = "tls"

// InitKeys makes everything secret that an installation needs below dir: a key
// pair for each family of agents, the key of the broker's store, that for links to
// evidence, and a test CA with a certificate for every role. Keys that exist are
// kept. In a directory of an earlier version only the families that it lacks get
// keys, which are returned; when there are none, the error wraps seal.ErrKeysExist
// or certs.ErrExists.
func InitKeys(dir string, hosts []string) (added []node.Family, err error) {
	if err := seal.EnsureLinkKey(dir); err != nil {
		return nil, fmt.Errorf("make the key for links: %w", err)
	}
	err = seal.WriteKeys(dir, node.KeyFamilies())
	if errors.Is(err, seal.ErrKeysExist) {
		added, aerr := seal.AddFamilies(dir, node.KeyFamilies())
		if aerr != nil || len(added) > 0 {
			return added, aerr
		}
	}
	if err != nil {
		return nil, fmt.Errorf("make family keys: %w", err)
	}
	if err := certs.InitCA(filepath.Join(dir, tlsDir), hosts); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	return nil, nil
}

// ensureKeys makes the keys at the first start, and those of families that an
// earlier version did not have.
func ensureKeys(cfg *config.Config) error {
	dir := cfg.KeyDir()
	if err := seal.EnsureLinkKey(dir); err != nil {
		return fmt.Errorf("make the key for links: %w", err)
	}
	err := seal.WriteKeys(dir, node.KeyFamilies())
	if errors.Is(err, seal.ErrKeysExist) {
		_, err = seal.AddFamilies(dir, node.KeyFamilies())
	}
	if err != nil {
		return fmt.Errorf("make family keys: %w", err)
	}
	if cfg.Plaintext() {
		return nil
	}
	err = certs.InitCA(filepath.Join(dir, tlsDir), nil)
	if err != nil && !errors.Is(err, certs.ErrExists) {
		return fmt.Errorf("make certificates: %w", err)
	}
	return nil
}

// deriveTLS uses the certificates of the key directory when none are named.
func deriveTLS(c *config.Config) {
	if c.TLS.Cert != "" || c.TLS.Key != "" || c.TLS.CA != "" || c.TLS.Insecure {
		return
	}
	dir := filepath.Join(c.KeyDir(), tlsDir)
	c.TLS.Cert = filepath.Join(dir, "server.crt")
	c.TLS.Key = filepath.Join(dir, "server.key")
	c.TLS.CA = filepath.Join(dir, "ca.crt")
}
