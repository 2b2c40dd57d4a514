// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the format of hashed host names
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// markerRevoked marks a key that nobody may use any more.
const markerRevoked = "revoked"

// KnownHosts are host keys in a file in the format of OpenSSH. Lines for
// certificate authorities are kept but not used. The file may be shared by
// several processes: writers take turns by a lock file, and readers never see
// half a file.
type KnownHosts struct {
	path   string
	strict bool
	log    *slog.Logger

	mu     sync.Mutex
	loaded fs.FileInfo
	lines  []knownLine
}

// knownLine is one line of the file.
type knownLine struct {
	text   string
	marker string
	hosts  []string
	// key is nil for comments and lines that do not parse.
	key ssh.PublicKey
}

// Recorded returns the keys that are recorded for any of the addresses.
func (k *KnownHosts) Recorded(addresses []string) ([]ssh.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return nil, err
	}
	return k.recorded(addresses), nil
}

func (k *KnownHosts) recorded(addresses []string) []ssh.PublicKey {
	var keys []ssh.PublicKey
	for _, line := range k.lines {
		if line.key != nil && line.marker == "" && line.matches(addresses) {
			keys = append(keys, line.key)
		}
	}
	return keys
}

// Check compares a key with the recorded ones.
func (k *KnownHosts) Check(addresses []string, key ssh.PublicKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.load(); err != nil {
		return err
	}
	return k.check(addresses, key)
}

func (k *KnownHosts) check(addresses []string, key ssh.PublicKey) error {
	for _, line := range k.lines {
		if line.marker == markerRevoked && sameKey(line.key, key) && line.matches(addresses) {
			return fmt.Errorf("%w: %s", ErrHostKeyRevoked, fingerprint(key))
		}
	}
	known := k.recorded(addresses)
	switch {
	case slices.ContainsFunc(known, func(r ssh.PublicKey) bool { return sameKey(r, key) }):
		return nil
	case len(known) > 0:
		return changed(known, key)
	case k.strict:
		return fmt.Errorf("%w: %s is not in %s", ErrHostKeyUnknown, fingerprint(key), k.path)
	default:
		return nil
	}
}

// changed tells both sides of a mismatch.
func changed(known []ssh.PublicKey, key ssh.PublicKey) error {
	return fmt.Errorf("%w: the host shows %s, recorded is %s", ErrHostKeyChanged, fingerprint(key), fingerprints(known))
}

// Record writes the key down for all addresses, unless it is there already. When
// another key was recorded meanwhile, the login that came first counts.
func (k *KnownHosts) Record(addresses []string, key ssh.PublicKey, replace bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	// The home of a service often lacks the directory.
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return fmt.Errorf("record host key: %w", err)
	}
	unlock, err := lockFile(k.path + ".lock")
	if err != nil {
		return fmt.Errorf("record host key: %w", err)
	}
	defer unlock()
	if err := k.load(); err != nil {
		return err
	}
	err = k.check(addresses, key)
	known := k.recorded(addresses)
	switch {
	case err == nil && len(known) > 0:
		return nil
	case errors.Is(err, ErrHostKeyChanged) && replace:
		k.log.Warn("host key replaced after a reinstallation",
			"addr", addresses[0], "old", fingerprints(known), "new", fingerprint(key))
	case errors.Is(err, ErrHostKeyUnknown) && replace, err == nil:
		k.log.Info("host key recorded", "addr", addresses[0], "new", fingerprint(key))
	default:
		return err
	}
	return k.write(append(without(k.lines, addresses), parseLine(knownhosts.Line(addresses, key))))
}

// without drops the addresses from the lines that name them. Other hosts of a
// line keep their key; patterns are left alone.
func without(lines []knownLine, addresses []string) []knownLine {
	var out []knownLine
	for _, line := range lines {
		if line.key == nil || line.marker != "" || !line.matches(addresses) {
			out = append(out, line)
			continue
		}
		keep := slices.DeleteFunc(slices.Clone(line.hosts), func(h string) bool {
			return slices.ContainsFunc(addresses, func(a string) bool { return h == knownhosts.Normalize(a) || hashedMatch(h, a) })
		})
		if len(keep) > 0 {
			out = append(out, parseLine(strings.Join(keep, ",")+strings.TrimPrefix(strings.TrimSpace(line.text), strings.Join(line.hosts, ","))))
		}
	}
	return out
}

// load reads the file unless it is the one that was read before.
func (k *KnownHosts) load() error {
	info, err := os.Stat(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		k.loaded, k.lines = nil, nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("read known hosts: %w", err)
	}
	if k.loaded != nil && os.SameFile(k.loaded, info) && k.loaded.ModTime().Equal(info.ModTime()) && k.loaded.Size() == info.Size() {
		return nil
	}
	data, err := os.ReadFile(k.path)
	if err != nil {
		return fmt.Errorf("read known hosts: %w", err)
	}
	k.loaded, k.lines = info, nil
	for text := range strings.Lines(string(data)) {
		k.lines = append(k.lines, parseLine(strings.TrimRight(text, "\r\n")))
	}
	return nil
}

func parseLine(text string) knownLine {
	line := knownLine{text: text}
	if marker, hosts, key, _, _, err := ssh.ParseKnownHosts([]byte(text)); err == nil {
		line.marker, line.hosts, line.key = marker, hosts, key
	}
	return line
}

// write replaces the file in one step.
func (k *KnownHosts) write(lines []knownLine) error {
	var text bytes.Buffer
	for _, line := range lines {
		text.WriteString(line.text + "\n")
	}
	f, err := os.CreateTemp(filepath.Dir(k.path), "."+filepath.Base(k.path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write known hosts: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text.Bytes())
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), k.path)
	}
	if err != nil {
		return fmt.Errorf("write known hosts: %w", err)
	}
	// What was written need not be read again: a file may name thousands of hosts,
	// and each of them is recorded one day. This process still has the writers' lock.
	k.lines = lines
	if k.loaded, err = os.Stat(k.path); err != nil {
		k.loaded = nil
	}
	return nil
}

// lockFile waits for the only writer's place among all processes. Writers hold it
// for milliseconds.
func lockFile(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { f.Close() }, nil
}

// matches reports whether the line is for any of the addresses.
func (l knownLine) matches(addresses []string) bool {
	for _, address := range addresses {
		found := false
		for _, pattern := range l.hosts {
			pattern, negated := strings.CutPrefix(pattern, "!")
			if !hostMatch(pattern, address) {
				continue
			}
			if found = !negated; negated {
				break
			}
		}
		if found {
			return true
		}
	}
	return false
}

func hostMatch(pattern, address string) bool {
	name := knownhosts.Normalize(address)
	if strings.HasPrefix(pattern, "|") {
		return hashedMatch(pattern, address)
	}
	if !strings.ContainsAny(pattern, "*?") {
		return strings.EqualFold(pattern, name)
	}
	// Brackets are literal in this format.
	ok, err := path.Match(strings.NewReplacer("[", `\[`, "]", `\]`).Replace(pattern), name)
	return ok && err == nil
}

// hashedMatch compares with a name that is stored as |1|salt|HMAC-SHA1(salt, name).
func hashedMatch(pattern, address string) bool {
	fields := strings.Split(pattern, "|")
	if len(fields) != 4 || fields[0] != "" || fields[1] != "1" {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(fields[2])
	if err != nil {
		return false
	}
	sum, err := base64.StdEncoding.DecodeString(fields[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(knownhosts.Normalize(address)))
	return hmac.Equal(mac.Sum(nil), sum)
}

func sameKey(a, b ssh.PublicKey) bool {
	return a != nil && b != nil && bytes.Equal(a.Marshal(), b.Marshal())
}

// fingerprint is a key's type and SHA-256, as ssh-keygen shows it.
func fingerprint(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

func fingerprints(keys []ssh.PublicKey) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = fingerprint(key)
	}
	return strings.Join(texts, ", ")
}
