// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// algorithms is what is offered to a host.
func algorithms(legacy bool) ssh.Algorithms {
	a := ssh.SupportedAlgorithms()
	if !legacy {
		return a
	}
	// The weak ones go last, so that they are used only where nothing else is.
	weak := ssh.InsecureAlgorithms()
	a.KeyExchanges = append(a.KeyExchanges, weak.KeyExchanges...)
	a.Ciphers = append(a.Ciphers, weak.Ciphers...)
	a.MACs = append(a.MACs, weak.MACs...)
	a.HostKeys = append(a.HostKeys, weak.HostKeys...)
	return a
}

// hostKeyAlgorithms limits offered to those of the recorded key types: a server
// with several keys would otherwise show one that is not recorded.
func hostKeyAlgorithms(offered []string, recorded []ssh.PublicKey) []string {
	if len(recorded) == 0 {
		return offered
	}
	var out []string
	for _, algorithm := range offered {
		if slices.ContainsFunc(recorded, func(k ssh.PublicKey) bool { return keyType(algorithm) == k.Type() }) {
			out = append(out, algorithm)
		}
	}
	return out
}

// keyType is the type of the keys that a signature algorithm is used with.
func keyType(algorithm string) string {
	switch algorithm {
	case ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512:
		return ssh.KeyAlgoRSA
	default:
		return algorithm
	}
}

// negotiation explains that no algorithm is common, by what the server offers.
func negotiation(err error, legacy bool) (string, bool) {
	var n *ssh.AlgorithmNegotiationError
	if !errors.As(err, &n) {
		return "", false
	}
	text := fmt.Sprintf("no common algorithm for %s: the server offers only %s", n.What, strings.Join(n.RequestedAlgorithms, ", "))
	if !legacy {
		weak := ssh.InsecureAlgorithms()
		all := slices.Concat(weak.KeyExchanges, weak.Ciphers, weak.MACs, weak.HostKeys)
		if slices.ContainsFunc(n.RequestedAlgorithms, func(a string) bool { return slices.Contains(all, a) }) {
			text += "; legacy algorithms are off for this host"
		}
	}
	return text, true
}

// isHostKeyNegotiation reports whether it is the host key's algorithm that is not
// common.
func isHostKeyNegotiation(err error) bool {
	var n *ssh.AlgorithmNegotiationError
	return errors.As(err, &n) && n.What == "host key"
}
