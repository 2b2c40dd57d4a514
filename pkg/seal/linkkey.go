// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rackbus/rackbus/pkg/secret"
)

// The key with which links to evidence are signed: 32 random bytes in hex. All
// replicas of the API need the same one.
const (
	linkKeyName = "link.key"
	linkKeySize = 32
)

// EnsureLinkKey makes the key for links below dir when there is none. Of several
// processes that do so at the same time one wins.
func EnsureLinkKey(dir string) error {
	path := filepath.Join(dir, linkKeyName)
	if _, err := os.Lstat(path); err == nil {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for link key: %w", err)
	}
	if err := os.MkdirAll(dir, modeDir); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	raw := make([]byte, linkKeySize)
	defer clear(raw)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("draw link key: %w", err)
	}
	fresh, err := os.MkdirTemp(dir, ".link-*")
	if err != nil {
		return fmt.Errorf("write link key: %w", err)
	}
	defer os.RemoveAll(fresh)
	tmp := filepath.Join(fresh, linkKeyName)
	if err := writeFile(tmp, []byte(hex.EncodeToString(raw)+"\n"), modeSecret); err != nil {
		return err
	}
	// A link, unlike a rename, does not replace what somebody else has made.
	if err := os.Link(tmp, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write link key: %w", err)
	}
	return nil
}

// LoadLinkKey reads the key for links below dir; the error wraps fs.ErrNotExist when
// there is none. The same rules as for seeds apply to the file.
func LoadLinkKey(dir string) (secret.Value, error) {
	path := filepath.Join(dir, linkKeyName)
	raw, err := readSecretFile(path)
	if err != nil {
		return secret.Value{}, err
	}
	defer clear(raw)
	key := make([]byte, hex.DecodedLen(len(raw)))
	n, err := hex.Decode(key, bytes.TrimSpace(raw))
	if err != nil || n != linkKeySize {
		clear(key)
		return secret.Value{}, fmt.Errorf("%w: %s is not %d bytes in hex", ErrInvalidKey, path, linkKeySize)
	}
	return secret.FromBytes(key[:n]), nil
}
