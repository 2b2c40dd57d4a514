// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
)

// The layout below a key directory: families/<family>.seed and .pub, one key
// per line, newest first; at-rest.key with 32 random bytes in hex.
const (
	familiesDir = "families"
	seedSuffix  = ".seed"
	pubSuffix   = ".pub"
	atRestName  = "at-rest.key"
	atRestSize  = 32

	modeSecret = 0o600
	modePublic = 0o644
	modeDir    = 0o755

	maxKeyFile = 1 << 20
)

func seedPath(dir string, f node.Family) string {
	return filepath.Join(dir, familiesDir, string(f)+seedSuffix)
}

func publicPath(dir string, f node.Family) string {
	return filepath.Join(dir, familiesDir, string(f)+pubSuffix)
}

// WriteKeys makes one key pair per family and the at-rest key of the broker
// below dir. It returns ErrKeysExist, and writes nothing, when any of the files
// is there.
func WriteKeys(dir string, families []node.Family) error {
	paths := []string{filepath.Join(dir, atRestName)}
	for _, f := range families {
		if !f.HasKeys() {
			return fmt.Errorf("%w: unknown family %q", ErrInvalidKey, f)
		}
		paths = append(paths, seedPath(dir, f), publicPath(dir, f))
	}
	for _, path := range paths {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%w: %s", ErrKeysExist, path)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("look for key file: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, familiesDir), modeDir); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	for _, f := range families {
		if err := prependKey(dir, f, nil, nil); err != nil {
			return err
		}
	}
	raw := make([]byte, atRestSize)
	defer clear(raw)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("draw at-rest key: %w", err)
	}
	return writeFile(filepath.Join(dir, atRestName), []byte(hex.EncodeToString(raw)+"\n"), modeSecret)
}

// AddFamilies makes a key pair for each of the families of which dir has none,
// and touches no other file. A seed whose public key is missing, as an
// interrupted call leaves it, gets that. It returns the families it made keys of.
func AddFamilies(dir string, families []node.Family) ([]node.Family, error) {
	var added []node.Family
	for _, f := range families {
		if !f.HasKeys() {
			return added, fmt.Errorf("%w: unknown family %q", ErrInvalidKey, f)
		}
		if _, err := os.Lstat(publicPath(dir, f)); err == nil {
			continue // its seed may lie with the agents only
		} else if !errors.Is(err, fs.ErrNotExist) {
			return added, fmt.Errorf("look for key file: %w", err)
		}
		seeds, err := LoadSeeds(dir, f)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = prependKey(dir, f, nil, nil)
		case err == nil:
			err = writePublic(dir, f, seeds)
		}
		if err != nil {
			return added, err
		}
		added = append(added, f)
	}
	return added, nil
}

// writePublic writes the public keys of a family's seeds.
func writePublic(dir string, f node.Family, seeds []secret.Value) error {
	var lines bytes.Buffer
	for _, seed := range seeds {
		pair, err := nkeys.FromCurveSeed(seed.Bytes())
		if err != nil {
			return fmt.Errorf("%w: seed of family %s: %w", ErrInvalidKey, f, err)
		}
		public, err := pair.PublicKey()
		if err != nil {
			return fmt.Errorf("derive public key of family %s: %w", f, err)
		}
		lines.WriteString(public + "\n")
	}
	return writeFile(publicPath(dir, f), lines.Bytes(), modePublic)
}

// AddKey rotates a family: a new pair is put in front of the ones in dir, which
// stay so that older boxes can be opened. It returns the new public key.
func AddKey(dir string, f node.Family) (string, error) {
	seeds, err := LoadSeeds(dir, f)
	if err != nil {
		return "", err
	}
	publics, err := loadPublicKeys(dir, f)
	if err != nil {
		return "", err
	}
	if err := prependKey(dir, f, seeds, publics); err != nil {
		return "", err
	}
	publics, err = loadPublicKeys(dir, f)
	if err != nil {
		return "", err
	}
	return publics[0], nil
}

// prependKey writes the seed first: a public key without its seed would seal
// what nobody can open.
func prependKey(dir string, f node.Family, seeds []secret.Value, publics []string) error {
	seed, public, err := GenerateFamilyKey()
	if err != nil {
		return err
	}
	defer seed.Wipe()
	var secretLines, publicLines bytes.Buffer
	for _, s := range append([]secret.Value{seed}, seeds...) {
		secretLines.Write(append(s.Bytes()[:len(s.Bytes()):len(s.Bytes())], '\n'))
	}
	for _, p := range append([]string{public}, publics...) {
		publicLines.WriteString(p + "\n")
	}
	if err := writeFile(seedPath(dir, f), secretLines.Bytes(), modeSecret); err != nil {
		return err
	}
	clear(secretLines.Bytes())
	return writeFile(publicPath(dir, f), publicLines.Bytes(), modePublic)
}

// LoadSeeds reads the seeds of one family, newest first. It returns
// ErrInsecureMode when group or others can access the file and ErrInvalidKey
// for a line that is no curve seed.
func LoadSeeds(dir string, f node.Family) ([]secret.Value, error) {
	path := seedPath(dir, f)
	raw, err := readSecretFile(path)
	if err != nil {
		return nil, err
	}
	defer clear(raw)
	var seeds []secret.Value
	for n, line := range bytes.Split(raw, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if prefix, _, err := nkeys.DecodeSeed(line); err != nil || prefix != nkeys.PrefixByteCurve {
			return nil, fmt.Errorf("%w: %s line %d is no curve seed", ErrInvalidKey, path, n+1)
		}
		seeds = append(seeds, secret.New(string(line)))
	}
	if len(seeds) == 0 {
		return nil, fmt.Errorf("%w: %s holds no seed", ErrInvalidKey, path)
	}
	return seeds, nil
}

// LoadPublic reads the public keys of every family that has a file below dir.
// No file at all is an error.
func LoadPublic(dir string) (PublicKeys, error) {
	keys := make(PublicKeys)
	for _, f := range node.KeyFamilies() {
		list, err := loadPublicKeys(dir, f)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		keys[f] = list
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: no public keys in %s", ErrNoKey, filepath.Join(dir, familiesDir))
	}
	return keys, nil
}

func loadPublicKeys(dir string, f node.Family) ([]string, error) {
	path := publicPath(dir, f)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read public keys: %w", err)
	}
	var keys []string
	for n, line := range bytes.Split(raw, []byte("\n")) {
		key := string(bytes.TrimSpace(line))
		if key == "" {
			continue
		}
		if !IsPublicKey(key) {
			return nil, fmt.Errorf("%w: %s line %d is no public curve key", ErrInvalidKey, path, n+1)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: %s holds no key", ErrInvalidKey, path)
	}
	return keys, nil
}

// LoadAtRest reads the key with which the broker encrypts its files, as the hex
// text the broker takes. The same rules as for seeds apply to the file.
func LoadAtRest(dir string) (secret.Value, error) {
	path := filepath.Join(dir, atRestName)
	raw, err := readSecretFile(path)
	if err != nil {
		return secret.Value{}, err
	}
	defer clear(raw)
	text := bytes.TrimSpace(raw)
	if decoded, err := hex.DecodeString(string(text)); err != nil || len(decoded) != atRestSize {
		return secret.Value{}, fmt.Errorf("%w: %s is not %d bytes in hex", ErrInvalidKey, path, atRestSize)
	}
	return secret.New(string(text)), nil
}

// readSecretFile checks the mode of the very file it reads.
func readSecretFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open secret file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("stat secret file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&refusedBits(ownerOf(info), os.Geteuid()) != 0 {
		return nil, fmt.Errorf("%w: %s has mode %04o, want %04o", ErrInsecureMode, path, mode, modeSecret)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("read secret file: %w", err)
	}
	return raw, nil
}

// writeFile replaces path in one step, so that a crash leaves either the old
// keys or the new ones.
func writeFile(path string, content []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return fmt.Errorf("write key file %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("write key file: %w", err)
	}
	return nil
}
