// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/seal"
	"github.com/rackbus/rackbus/pkg/secret"
)

func decodeSeed(t *testing.T, seed secret.Value) (nkeys.PrefixByte, []byte) {
	t.Helper()
	prefix, raw, err := nkeys.DecodeSeed(seed.Bytes())
	require.NoError(t, err)
	return prefix, raw
}

func TestKeyFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, seal.WriteKeys(dir, node.Families()))
	for name, want := range map[string]fs.FileMode{
		"families/compute.seed": 0o600, "families/compute.pub": 0o644,
		"families/switch.seed": 0o600, "families/powershelf.seed": 0o600, "at-rest.key": 0o600,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, info.Mode().Perm(), name)
	}
	require.ErrorIs(t, seal.WriteKeys(dir, node.Families()), seal.ErrKeysExist)

	publics, err := seal.LoadPublic(dir)
	require.NoError(t, err)
	require.Len(t, publics, 3)
	seeds, err := seal.LoadSeeds(dir, node.FamilySwitch)
	require.NoError(t, err)
	require.Len(t, seeds, 1)
	opener := newOpener(t, seeds...)
	require.True(t, opener.Holds(publics[node.FamilySwitch][0]))
	require.False(t, opener.Holds(publics[node.FamilyCompute][0]))

	key, err := seal.LoadAtRest(dir)
	require.NoError(t, err)
	require.Len(t, key.Reveal(), 64)

	leftovers, err := filepath.Glob(filepath.Join(dir, "*", ".key-*"))
	require.NoError(t, err)
	require.Empty(t, leftovers)
}

// TestAddFamilies brings a directory of an earlier version up to date.
func TestAddFamilies(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, seal.WriteKeys(dir, node.Families()))
	require.ErrorIs(t, seal.WriteKeys(dir, node.KeyFamilies()), seal.ErrKeysExist)
	before := filesOf(t, dir)
	added, err := seal.AddFamilies(dir, node.KeyFamilies())
	require.NoError(t, err)
	require.Equal(t, []node.Family{node.FamilyRack}, added)
	after := filesOf(t, dir)
	require.Len(t, after, len(before)+2)
	for name, content := range before {
		require.Equal(t, content, after[name], name)
	}
	publics, err := seal.LoadPublic(dir)
	require.NoError(t, err)
	seeds, err := seal.LoadSeeds(dir, node.FamilyRack)
	require.NoError(t, err)
	opener := newOpener(t, seeds...)
	require.True(t, opener.Holds(publics[node.FamilyRack][0]))
	for _, f := range node.Families() {
		require.False(t, opener.Holds(publics[f][0]), "the family rack opens nothing of %s", f)
	}

	added, err = seal.AddFamilies(dir, node.KeyFamilies())
	require.NoError(t, err)
	require.Empty(t, added)
	// An API host has public keys only, and an interrupted call leaves a seed only.
	require.NoError(t, os.Remove(filepath.Join(dir, "families", "compute.seed")))
	require.NoError(t, os.Remove(filepath.Join(dir, "families", "rack.pub")))
	added, err = seal.AddFamilies(dir, node.KeyFamilies())
	require.NoError(t, err)
	require.Equal(t, []node.Family{node.FamilyRack}, added)
	again, err := seal.LoadPublic(dir)
	require.NoError(t, err)
	require.Equal(t, publics, again)
	require.NoFileExists(t, filepath.Join(dir, "families", "compute.seed"))
	_, err = seal.AddFamilies(dir, []node.Family{"../x"})
	require.ErrorIs(t, err, seal.ErrInvalidKey)
}

// filesOf reads every file of a key directory.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		out[path] = string(data)
		return err
	}))
	return out
}

func TestAddKeyKeepsOldOnes(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, seal.WriteKeys(dir, []node.Family{node.FamilyCompute}))
	before, err := seal.LoadPublic(dir)
	require.NoError(t, err)
	added, err := seal.AddKey(dir, node.FamilyCompute)
	require.NoError(t, err)
	after, err := seal.LoadPublic(dir)
	require.NoError(t, err)
	require.Equal(t, []string{added, before[node.FamilyCompute][0]}, after[node.FamilyCompute])
	seeds, err := seal.LoadSeeds(dir, node.FamilyCompute)
	require.NoError(t, err)
	opener := newOpener(t, seeds...)
	for _, key := range after[node.FamilyCompute] {
		require.True(t, opener.Holds(key))
	}
	_, err = seal.AddKey(dir, node.FamilySwitch)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestSecretFilesMustBePrivate(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, seal.WriteKeys(dir, node.Families()))
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o644} {
		require.NoError(t, os.Chmod(filepath.Join(dir, "families/compute.seed"), mode))
		_, err := seal.LoadSeeds(dir, node.FamilyCompute)
		require.ErrorIs(t, err, seal.ErrInsecureMode)
		require.NoError(t, os.Chmod(filepath.Join(dir, "at-rest.key"), mode))
		_, err = seal.LoadAtRest(dir)
		require.ErrorIs(t, err, seal.ErrInsecureMode)
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "families/compute.seed"), 0o400))
	_, err := seal.LoadSeeds(dir, node.FamilyCompute)
	require.NoError(t, err)
}

func TestBadKeyFiles(t *testing.T) {
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	userSeed, err := user.Seed()
	require.NoError(t, err)
	tests := []struct {
		name, file, content string
		load                func(dir string) error
	}{
		{"no seed", "families/compute.seed", "\n\n", loadComputeSeeds},
		{"rubbish seed", "families/compute.seed", "rubbish\n", loadComputeSeeds},
		{"user seed", "families/compute.seed", string(userSeed), loadComputeSeeds},
		{"rubbish public key", "families/compute.pub", "XABC", loadPublic},
		{"empty public key file", "families/compute.pub", "", loadPublic},
		{"short at-rest key", "at-rest.key", "abcd", loadAtRest},
		{"at-rest key not hex", "at-rest.key", "zz", loadAtRest},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "families"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.content), 0o600))
			err := tt.load(dir)
			require.ErrorIs(t, err, seal.ErrInvalidKey)
			require.NotContains(t, err.Error(), string(userSeed))
		})
	}
	require.ErrorIs(t, loadPublic(t.TempDir()), seal.ErrNoKey)
	require.ErrorIs(t, loadAtRest(t.TempDir()), fs.ErrNotExist)
	require.ErrorIs(t, seal.WriteKeys(t.TempDir(), []node.Family{"../x"}), seal.ErrInvalidKey)
}

func loadComputeSeeds(dir string) error {
	_, err := seal.LoadSeeds(dir, node.FamilyCompute)
	return err
}

func loadPublic(dir string) error {
	_, err := seal.LoadPublic(dir)
	return err
}

func loadAtRest(dir string) error {
	_, err := seal.LoadAtRest(dir)
	return err
}
