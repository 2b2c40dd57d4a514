// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"

	"github.com/nats-io/nkeys"

	"github.com/rackbus/rackbus/pkg/node"
)

// dataKeySize selects AES-256.
const dataKeySize = 32

// PublicKeys holds the public keys to seal for, per family, newest first. Only
// the newest is used.
type PublicKeys map[node.Family][]string

// Sealer seals payloads for agent families. It holds a sender key made at its
// creation and is safe for concurrent use.
type Sealer struct {
	pair   nkeys.KeyPair
	sender string
	newest map[node.Family]string
}

// NewSealer returns a Sealer for the families in keys. It refuses malformed
// keys with ErrInvalidKey; a family without any key is an error only when
// something is to be sealed for it.
func NewSealer(keys PublicKeys) (*Sealer, error) {
	newest := make(map[node.Family]string, len(keys))
	for family, list := range keys {
		for _, key := range list {
			if !IsPublicKey(key) {
				return nil, fmt.Errorf("%w: public key of family %s", ErrInvalidKey, family)
			}
		}
		if len(list) > 0 {
			newest[family] = list[0]
		}
	}
	pair, err := nkeys.CreateCurveKeys()
	if err != nil {
		return nil, fmt.Errorf("generate sender key: %w", err)
	}
	sender, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("derive sender public key: %w", err)
	}
	return &Sealer{pair: pair, sender: sender, newest: newest}, nil
}

// Session seals any number of payloads of one request with one data key. It is
// safe for concurrent use.
type Session struct {
	keyID   string
	sender  string
	wrapped []byte
	aead    cipher.AEAD
}

// NewSession draws a data key and wraps it for family; this is the only costly
// step. It returns ErrNoKey when no public key is configured.
func (s *Sealer) NewSession(family node.Family) (*Session, error) {
	keyID, ok := s.newest[family]
	if !ok {
		return nil, fmt.Errorf("seal for family %q: %w", family, ErrNoKey)
	}
	key := make([]byte, dataKeySize)
	defer clear(key)
	if _, err := rand.Read(key); err != nil {
		return nil, fmt.Errorf("draw data key: %w", err)
	}
	wrapped, err := s.pair.Seal(key, keyID)
	if err != nil {
		return nil, fmt.Errorf("wrap data key for family %q: %w", family, err)
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, err
	}
	return &Session{keyID: keyID, sender: s.sender, wrapped: wrapped, aead: aead}, nil
}

// Seal encrypts plaintext and binds it to aad (see AAD). The caller keeps
// plaintext and wipes it when done.
func (s *Session) Seal(aad, plaintext []byte) Box {
	return Box{
		KeyID:  s.keyID,
		Sender: s.sender,
		DEK:    append([]byte(nil), s.wrapped...),
		Data:   s.aead.Seal(nil, nil, plaintext, aad),
	}
}

// Format keeps the private key out of every printed form.
func (s *Sealer) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "seal.Sealer(%s)", s.sender) }

// Format keeps the data key out of every printed form.
func (s *Session) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "seal.Session(for %s)", s.keyID) }

// newAEAD returns AES-GCM that draws its own 96-bit nonce per message. A data
// key seals far fewer than the 2^32 messages for which that is safe.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("data key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("data key: %w", err)
	}
	return aead, nil
}
