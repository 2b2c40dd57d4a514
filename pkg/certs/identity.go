// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"strings"
	"unicode"
)

// TrustDomain is the SPIFFE trust domain of certificates made by this package.
const TrustDomain = "rackbus"

// UnknownPeer is the identity of a connection without a client certificate.
const UnknownPeer = "unknown"

// PeerIdentity names the holder of a certificate for logs and audit: its SPIFFE
// URI, else its subject DN without control characters, else "sha256:" and the
// digest of the certificate. A nil certificate is UnknownPeer.
func PeerIdentity(cert *x509.Certificate) string {
	if cert == nil {
		return UnknownPeer
	}
	for _, uri := range cert.URIs {
		if strings.EqualFold(uri.Scheme, "spiffe") && uri.Host != "" {
			return printable(uri.String())
		}
	}
	if subject := printable(cert.Subject.String()); subject != "" {
		return subject
	}
	sum := sha256.Sum256(cert.Raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func printable(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s))
}
