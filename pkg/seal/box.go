// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"encoding/binary"
	"fmt"

	"github.com/nats-io/nkeys"

	"github.com/rackbus/rackbus/pkg/secret"
)

// Box is a sealed payload. All its fields may be stored and shown.
type Box struct {
	KeyID  string // public key of the family the data key is wrapped for
	Sender string // public key of the process that sealed
	DEK    []byte // wrapped data key, equal in all boxes of one session
	Data   []byte // nonce, ciphertext and tag
}

// aadVersion starts every AAD, so that the encoding can change.
const aadVersion = "rackbus.seal.1"

// AAD returns the place a payload belongs to, which is authenticated with it: a
// box moved to another kind, rack, node or endpoint does not open. Each part is
// preceded by its length, so different parts never give equal bytes.
func AAD(kind, rack, node, endpoint string) []byte {
	out := []byte(aadVersion)
	for _, part := range [...]string{kind, rack, node, endpoint} {
		out = binary.AppendUvarint(out, uint64(len(part)))
		out = append(out, part...)
	}
	return out
}

// publicKeySize is the length of a public curve key in text form: one prefix
// byte, 32 key bytes and a 16-bit checksum in base32.
const publicKeySize = 56

// IsPublicKey reports whether text is a public curve key. The length is checked
// too, since nkeys decodes into a buffer of fixed size.
func IsPublicKey(text string) bool {
	return len(text) == publicKeySize && nkeys.IsValidPublicCurveKey(text)
}

// GenerateFamilyKey makes a key pair for one family. The seed belongs to the
// agents of that family, the public key to everyone who seals for them.
func GenerateFamilyKey() (seed secret.Value, public string, err error) {
	pair, err := nkeys.CreateCurveKeys()
	if err != nil {
		return secret.Value{}, "", fmt.Errorf("generate curve key: %w", err)
	}
	defer pair.Wipe()
	public, err = pair.PublicKey()
	if err != nil {
		return secret.Value{}, "", fmt.Errorf("derive public key: %w", err)
	}
	raw, err := pair.Seed()
	if err != nil {
		return secret.Value{}, "", fmt.Errorf("encode seed: %w", err)
	}
	return secret.FromBytes(raw), public, nil
}
