// SPDX-License-Identifier: Apache-2.0

package certs_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/certs"
)

// TestEnsureCA: the authority is made once, and what it issues later is trusted by those who know the first certificate.
func TestEnsureCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	first, err := certs.EnsureCA(dir)
	require.NoError(t, err)
	info, err := os.Stat(filepath.Join(dir, "ca.key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	again, err := certs.EnsureCA(dir)
	require.NoError(t, err)
	require.Equal(t, first.PEM(), again.PEM())
	issued, _, err := again.Issue(certs.Leaf{Role: "later"})
	require.NoError(t, err)
	block, _ := pem.Decode(issued)
	leaf, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(first.PEM()))
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)

	// A certificate that may not issue is no authority.
	_, key, err := again.Issue(certs.Leaf{Role: "leaf"})
	require.NoError(t, err)
	cert, key2, err := again.Issue(certs.Leaf{Role: "leaf"})
	require.NoError(t, err)
	require.NoError(t, certs.WritePair(dir, "ca", cert, key2))
	_, err = certs.EnsureCA(dir)
	require.ErrorContains(t, err, "no authority")
	require.NoError(t, certs.WritePair(dir, "ca", cert, key))
	_, err = certs.EnsureCA(dir)
	require.Error(t, err, "the key is of another certificate")
	require.NoError(t, os.Remove(filepath.Join(dir, "ca.crt")))
	_, err = certs.EnsureCA(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
