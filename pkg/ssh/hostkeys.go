// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"fmt"
	"log/slog"

	"golang.org/x/crypto/ssh"
)

// HostKeys decides which host keys are trusted. Addresses are "host:port"; several
// stand for one host. Implementations may be used by many goroutines.
type HostKeys interface {
	// Recorded returns the keys that are recorded for any of the addresses.
	Recorded(addresses []string) ([]ssh.PublicKey, error)
	// Check returns nil when a login may go on with the key. Its errors wrap
	// ErrHostKeyUnknown, ErrHostKeyChanged or ErrHostKeyRevoked.
	Check(addresses []string, key ssh.PublicKey) error
	// Record is called once a login with the key has succeeded. With replace the
	// key takes the place of the recorded ones.
	Record(addresses []string, key ssh.PublicKey, replace bool) error
}

// Policy names how host keys are checked.
type Policy string

// Policies.
const (
	// PolicyTrustOnFirstUse records the key of a host at the first login, and
	// refuses any other from then on.
	PolicyTrustOnFirstUse Policy = "trust_on_first_use"
	// PolicyStrict refuses hosts without a recorded key.
	PolicyStrict Policy = "strict"
	// PolicyOff checks nothing. For labs.
	PolicyOff Policy = "off"
)

// OpenHostKeys returns the host keys of a policy, kept in a file in the format of
// OpenSSH's known_hosts. The file need not exist. A file without a policy that
// reads it is an error, since somebody expects it to be used.
func OpenHostKeys(policy Policy, path string, log *slog.Logger) (HostKeys, error) {
	switch policy {
	case PolicyOff:
		if path != "" {
			return nil, fmt.Errorf("%w: a known hosts file is named, but host keys are not checked", ErrInvalidOptions)
		}
		return AnyHostKey{}, nil
	case PolicyTrustOnFirstUse, PolicyStrict:
		if path == "" {
			return nil, fmt.Errorf("%w: host key policy %s needs a known hosts file", ErrInvalidOptions, policy)
		}
		if log == nil {
			log = slog.New(slog.DiscardHandler)
		}
		return &KnownHosts{path: path, strict: policy == PolicyStrict, log: log}, nil
	default:
		return nil, fmt.Errorf("%w: unknown host key policy %q", ErrInvalidOptions, policy)
	}
}

// AnyHostKey trusts every key and records none.
type AnyHostKey struct{}

// Recorded returns no keys.
func (AnyHostKey) Recorded([]string) ([]ssh.PublicKey, error) { return nil, nil }

// Check accepts every key.
func (AnyHostKey) Check([]string, ssh.PublicKey) error { return nil }

// Record keeps nothing.
func (AnyHostKey) Record([]string, ssh.PublicKey, bool) error { return nil }
