// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// caName is the name of the files of a certificate authority.
const caName = "ca"

// EnsureCA returns the certificate authority in dir, ca.crt and ca.key, and makes
// it when neither file is there. One without the other is an error: a new
// authority would not be trusted by those who have the old certificate.
func EnsureCA(dir string) (*CA, error) {
	cert, key := filepath.Join(dir, caName+".crt"), filepath.Join(dir, caName+".key")
	_, cerr := os.Lstat(cert)
	_, kerr := os.Lstat(key)
	if errors.Is(cerr, fs.ErrNotExist) && errors.Is(kerr, fs.ErrNotExist) {
		return makeCA(dir)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("load certificate authority of %s: %w", dir, err)
	}
	private, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("load certificate authority of %s: ca.crt is no authority with an ECDSA key", dir)
	}
	return &CA{cert: pair.Leaf, key: private}, nil
}

func makeCA(dir string) (*CA, error) {
	ca, err := NewCA()
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(ca.key)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, modeDir); err != nil {
		return nil, fmt.Errorf("make certificate directory: %w", err)
	}
	return ca, WritePair(dir, caName, ca.PEM(), keyPEM)
}
