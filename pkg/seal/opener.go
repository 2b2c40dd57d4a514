// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"crypto/cipher"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/rackbus/rackbus/pkg/secret"
)

// OpenerOptions bound the memory of opened data keys. The zero value takes the
// defaults.
type OpenerOptions struct {
	// CacheSize is the number of data keys kept; default 1,024.
	CacheSize int
	// CacheTTL is how long an unused data key is kept; default 10 minutes.
	CacheTTL time.Duration
}

func (o OpenerOptions) withDefaults() OpenerOptions {
	if o.CacheSize <= 0 {
		o.CacheSize = 1024
	}
	if o.CacheTTL <= 0 {
		o.CacheTTL = 10 * time.Minute
	}
	return o
}

// Opener opens what was sealed for one family. It is safe for concurrent use.
type Opener struct {
	pairs map[string]nkeys.KeyPair // by public key

	mu    sync.Mutex
	cache *keyCache
}

// NewOpener returns an Opener with the seeds of one family: the current one and
// those of earlier rotations that records may still name. It refuses malformed
// seeds with ErrInvalidKey.
func NewOpener(seeds []secret.Value, opts OpenerOptions) (*Opener, error) {
	opts = opts.withDefaults()
	o := &Opener{
		pairs: make(map[string]nkeys.KeyPair, len(seeds)),
		cache: newKeyCache(opts.CacheSize, opts.CacheTTL),
	}
	for i, seed := range seeds {
		pair, err := nkeys.FromCurveSeed(seed.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%w: seed %d: %w", ErrInvalidKey, i, err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("derive public key of seed %d: %w", i, err)
		}
		o.pairs[public] = pair
	}
	return o, nil
}

// Holds reports whether the opener has the seed of a public key.
func (o *Opener) Holds(keyID string) bool {
	_, ok := o.pairs[keyID]
	return ok
}

// Open decrypts a box that was sealed with the same aad. It returns
// ErrUnknownKey when the box is for a key this opener does not hold and
// ErrTampered when it does not authenticate. The caller wipes the result.
func (o *Opener) Open(aad []byte, b Box) (secret.Value, error) {
	pair, ok := o.pairs[b.KeyID]
	if !ok {
		return secret.Value{}, fmt.Errorf("%w: %.64q", ErrUnknownKey, b.KeyID)
	}
	aead, err := o.dataKey(pair, b)
	if err != nil {
		return secret.Value{}, err
	}
	if len(b.Data) < aead.Overhead() {
		return secret.Value{}, fmt.Errorf("%w: payload too short", ErrTampered)
	}
	plain, err := aead.Open(nil, nil, b.Data, aad)
	if err != nil {
		return secret.Value{}, fmt.Errorf("%w: payload", ErrTampered)
	}
	return secret.FromBytes(plain), nil
}

// dataKey unwraps the data key of a box or takes it from the cache. The lock is
// held while unwrapping: the 10,000 commands of one batch arrive together and
// must not each pay for the same curve operation.
func (o *Opener) dataKey(pair nkeys.KeyPair, b Box) (cipher.AEAD, error) {
	id := cacheID{keyID: b.KeyID, sender: b.Sender, wrapped: string(b.DEK)}
	now := time.Now()

	o.mu.Lock()
	defer o.mu.Unlock()
	if aead, ok := o.cache.get(id, now); ok {
		return aead, nil
	}
	if !IsPublicKey(b.Sender) {
		return nil, fmt.Errorf("%w: sender", ErrTampered)
	}
	key, err := pair.Open(b.DEK, b.Sender)
	if err != nil {
		return nil, fmt.Errorf("%w: data key", ErrTampered)
	}
	defer clear(key)
	if len(key) != dataKeySize {
		return nil, fmt.Errorf("%w: data key of %d bytes", ErrTampered, len(key))
	}
	aead, err := newAEAD(key)
	if err != nil {
		return nil, err
	}
	o.cache.put(id, aead, now)
	return aead, nil
}

// Format keeps the private keys out of every printed form.
func (o *Opener) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "seal.Opener(%d keys)", len(o.pairs)) }
