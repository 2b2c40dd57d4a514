// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
)

const planted = "pl4nted-p4ssword"

func newPair(t testing.TB) (secret.Value, string) {
	t.Helper()
	seed, public, err := seal.GenerateFamilyKey()
	require.NoError(t, err)
	return seed, public
}

func newOpener(t testing.TB, seeds ...secret.Value) *seal.Opener {
	t.Helper()
	o, err := seal.NewOpener(seeds, seal.OpenerOptions{})
	require.NoError(t, err)
	return o
}

func newSession(t testing.TB, publics ...string) *seal.Session {
	t.Helper()
	s, err := seal.NewSealer(seal.PublicKeys{node.FamilyCompute: publics})
	require.NoError(t, err)
	session, err := s.NewSession(node.FamilyCompute)
	require.NoError(t, err)
	return session
}

func TestSealAndOpen(t *testing.T) {
	seed, public := newPair(t)
	session, opener := newSession(t, public), newOpener(t, seed)
	aad := seal.AAD("credentials", "r1", "n1", "bmc")

	box := session.Seal(aad, []byte(planted))
	require.Equal(t, public, box.KeyID)
	require.NotContains(t, string(box.Data), planted)
	plain, err := opener.Open(aad, box)
	require.NoError(t, err)
	require.Equal(t, planted, plain.Reveal())

	again := session.Seal(aad, []byte(planted))
	require.Equal(t, box.DEK, again.DEK, "one wrapped key per session")
	require.NotEqual(t, box.Data, again.Data, "a fresh nonce per box")

	empty, err := opener.Open(aad, session.Seal(aad, nil))
	require.NoError(t, err)
	require.True(t, empty.Empty())
}

func TestRefusedBoxes(t *testing.T) {
	seed, public := newPair(t)
	_, foreign := newPair(t)
	session := newSession(t, public)
	aad := seal.AAD("credentials", "r1", "n1", "bmc")
	flip := func(b []byte, i int) []byte {
		out := bytes.Clone(b)
		out[(i+len(out))%len(out)] ^= 1
		return out
	}
	tests := []struct {
		name string
		aad  []byte
		edit func(*seal.Box)
		want error
	}{
		{"other node", seal.AAD("credentials", "r1", "n2", "bmc"), func(*seal.Box) {}, seal.ErrTampered},
		{"other endpoint", seal.AAD("credentials", "r1", "n1", "host"), func(*seal.Box) {}, seal.ErrTampered},
		{"no aad", nil, func(*seal.Box) {}, seal.ErrTampered},
		{"nonce changed", aad, func(b *seal.Box) { b.Data = flip(b.Data, 0) }, seal.ErrTampered},
		{"ciphertext changed", aad, func(b *seal.Box) { b.Data = flip(b.Data, 13) }, seal.ErrTampered},
		{"tag changed", aad, func(b *seal.Box) { b.Data = flip(b.Data, -1) }, seal.ErrTampered},
		{"data cut", aad, func(b *seal.Box) { b.Data = b.Data[:5] }, seal.ErrTampered},
		{"no data", aad, func(b *seal.Box) { b.Data = nil }, seal.ErrTampered},
		{"wrapped key changed", aad, func(b *seal.Box) { b.DEK = flip(b.DEK, -1) }, seal.ErrTampered},
		{"no wrapped key", aad, func(b *seal.Box) { b.DEK = nil }, seal.ErrTampered},
		{"sender changed", aad, func(b *seal.Box) { b.Sender = foreign }, seal.ErrTampered},
		{"sender is no key", aad, func(b *seal.Box) { b.Sender = "X" }, seal.ErrTampered},
		{"overlong sender", aad, func(b *seal.Box) { b.Sender = longKey(t) }, seal.ErrTampered},
		{"other family key", aad, func(b *seal.Box) { b.KeyID = foreign }, seal.ErrUnknownKey},
		{"zero box", aad, func(b *seal.Box) { *b = seal.Box{} }, seal.ErrUnknownKey},
	}
	for _, warm := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s warm=%v", tt.name, warm), func(t *testing.T) {
				opener := newOpener(t, seed)
				box := session.Seal(aad, []byte(planted))
				if warm { // the cached data key must not open more than the cold one
					_, err := opener.Open(aad, box)
					require.NoError(t, err)
				}
				tt.edit(&box)
				_, err := opener.Open(tt.aad, box)
				require.ErrorIs(t, err, tt.want)
				require.NotContains(t, err.Error(), planted)
			})
		}
	}
}

// longKey passes the checksum and prefix tests of nkeys but is no curve key.
func longKey(t *testing.T) string {
	t.Helper()
	key, err := nkeys.Encode(nkeys.PrefixByteCurve, make([]byte, 200))
	require.NoError(t, err)
	return string(key)
}

func TestRotation(t *testing.T) {
	oldSeed, oldPublic := newPair(t)
	newSeed, newPublic := newPair(t)
	aad := seal.AAD("credentials", "r", "n", "bmc")
	before := newSession(t, oldPublic).Seal(aad, []byte("before"))
	after := newSession(t, newPublic, oldPublic).Seal(aad, []byte("after"))
	require.Equal(t, newPublic, after.KeyID, "the newest key seals")

	both := newOpener(t, newSeed, oldSeed)
	for want, box := range map[string]seal.Box{"before": before, "after": after} {
		got, err := both.Open(aad, box)
		require.NoError(t, err)
		require.Equal(t, want, got.Reveal())
	}
	retired := newOpener(t, newSeed)
	require.False(t, retired.Holds(oldPublic))
	_, err := retired.Open(aad, before)
	require.ErrorIs(t, err, seal.ErrUnknownKey)
}

func TestKeysAreChecked(t *testing.T) {
	seed, public := newPair(t)
	_, err := seal.NewSealer(seal.PublicKeys{node.FamilyCompute: {public, "rubbish"}})
	require.ErrorIs(t, err, seal.ErrInvalidKey)
	s, err := seal.NewSealer(seal.PublicKeys{node.FamilyCompute: {public}, node.FamilySwitch: nil})
	require.NoError(t, err)
	_, err = s.NewSession(node.FamilySwitch)
	require.ErrorIs(t, err, seal.ErrNoKey)
	_, err = s.NewSession(node.FamilyPowerShelf)
	require.ErrorIs(t, err, seal.ErrNoKey)
	_, err = seal.NewOpener([]secret.Value{seed, secret.New(public)}, seal.OpenerOptions{})
	require.ErrorIs(t, err, seal.ErrInvalidKey)
	require.NotContains(t, err.Error(), seed.Reveal())
}

func TestAADIsUnambiguous(t *testing.T) {
	require.NotEqual(t, seal.AAD("k", "ab", "c", ""), seal.AAD("k", "a", "bc", ""))
	require.NotEqual(t, seal.AAD("k", "a", "", "b"), seal.AAD("k", "", "a", "b"))
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.SampledFrom([]string{"", "a", "ab", "\x00", "\x01a", "b"})
		a := [4]string{part.Draw(t, "a0"), part.Draw(t, "a1"), part.Draw(t, "a2"), part.Draw(t, "a3")}
		b := [4]string{part.Draw(t, "b0"), part.Draw(t, "b1"), part.Draw(t, "b2"), part.Draw(t, "b3")}
		same := bytes.Equal(seal.AAD(a[0], a[1], a[2], a[3]), seal.AAD(b[0], b[1], b[2], b[3]))
		require.Equal(t, a == b, same)
	})
}

// TestOneSessionSealsManyNodes guards the point of the envelope: 10,000 nodes
// cost one curve operation. With one operation per node (about 0.1 ms each, on
// both sides) it would take seconds; the limit leaves a wide margin for a slow
// machine under the race detector.
func TestOneSessionSealsManyNodes(t *testing.T) {
	const nodes = 10_000
	seed, public := newPair(t)
	session, opener := newSession(t, public), newOpener(t, seed)
	wrapped := make(map[string]bool)
	start := time.Now()
	for i := range nodes {
		aad := seal.AAD("credentials", "r1", fmt.Sprint("n", i), "bmc")
		box := session.Seal(aad, []byte(planted))
		wrapped[string(box.DEK)] = true
		_, err := opener.Open(aad, box)
		require.NoError(t, err)
	}
	require.Len(t, wrapped, 1)
	require.Less(t, time.Since(start), 2*time.Second)
}

func TestConcurrentUse(t *testing.T) {
	seed, public := newPair(t)
	session, opener := newSession(t, public), newOpener(t, seed)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			aad := seal.AAD("credentials", "r1", fmt.Sprint(i), "bmc")
			plain, err := opener.Open(aad, session.Seal(aad, []byte(planted)))
			if err != nil || plain.Reveal() != planted {
				t.Errorf("open: %v", err)
			}
		})
	}
	wg.Wait()
}

// TestCacheLimits: an evicted or expired data key is unwrapped anew, and the
// opener stays correct.
func TestCacheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed, public := newPair(t)
		opener, err := seal.NewOpener([]secret.Value{seed}, seal.OpenerOptions{CacheSize: 2, CacheTTL: time.Minute})
		require.NoError(t, err)
		aad := seal.AAD("k", "r", "n", "")
		boxes := make([]seal.Box, 5)
		for i := range boxes {
			boxes[i] = newSession(t, public).Seal(aad, []byte{byte(i)})
		}
		for range 2 {
			for i, b := range boxes {
				plain, err := opener.Open(aad, b)
				require.NoError(t, err)
				require.Equal(t, []byte{byte(i)}, plain.Bytes())
			}
			require.Equal(t, 2, opener.Cached())
			time.Sleep(time.Minute) // fake clock
		}
		_, err = opener.Open(aad, boxes[0])
		require.NoError(t, err)
		require.Equal(t, 1, opener.Cached(), "the others have expired")
	})
}

func TestNothingLeaksWhenPrinted(t *testing.T) {
	seed, public := newPair(t)
	sealer, err := seal.NewSealer(seal.PublicKeys{node.FamilyCompute: {public}})
	require.NoError(t, err)
	session, err := sealer.NewSession(node.FamilyCompute)
	require.NoError(t, err)
	opener := newOpener(t, seed)
	aad := seal.AAD("credentials", "r1", "n1", "bmc")
	box := session.Seal(aad, []byte(planted))
	plain, err := opener.Open(aad, box)
	require.NoError(t, err)

	holder := struct {
		Opener  *seal.Opener
		Sealer  *seal.Sealer
		Session *seal.Session
	}{opener, sealer, session}
	_, rawSeed := decodeSeed(t, seed)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{opener, sealer, session, box, plain, seed, holder, []any{opener, sealer, session}} {
			shown := fmt.Sprintf(verb, v)
			require.NotContains(t, shown, planted)
			require.NotContains(t, shown, seed.Reveal())
			require.NotContains(t, shown, hex.EncodeToString([]byte(planted)))
			require.NotContains(t, shown, hex.EncodeToString(rawSeed))
			require.NotContains(t, shown, fmt.Sprint(rawSeed[:8])[1:20], "%s of %T", verb, v)
		}
	}
}
