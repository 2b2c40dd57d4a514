// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

const reportDir = "/host/cluster_infra/app_state/nmx-controller/nv-bridge-state-report"

// inside is a path below the switch's directory.
func inside(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// makeDirectories makes what a switch has from the start.
func (s *Switch) makeDirectories() error {
	all := []string{imagesDir, "/tmp", "/home/admin"}
	for component := range s.opts.Firmware {
		all = append(all, firmwareFolder(component))
	}
	for _, dir := range all {
		if err := s.root.MkdirAll(inside(dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// wipe removes all files.
func (s *Switch) wipe() error {
	for _, dir := range []string{"host", "home", "tmp"} {
		if err := s.root.RemoveAll(dir); err != nil {
			return err
		}
	}
	return s.makeDirectories()
}

func (s *Switch) clearTemporary() {
	_ = s.root.RemoveAll("tmp")
	if err := s.root.MkdirAll("tmp", 0o755); err != nil {
		s.opts.Logger.Error("making a directory failed", "node", s.opts.ID, "err", err)
	}
}

// list returns the names in a directory, sorted.
func (s *Switch) list(dir string) []string {
	entries, err := fs.ReadDir(s.root.FS(), inside(dir))
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out
}

// latest returns the names in a directory, the newest first.
func (s *Switch) latest(dir string) ([]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), inside(dir))
	if err != nil {
		return nil, err
	}
	var infos []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int {
		if c := b.ModTime().Compare(a.ModTime()); c != 0 {
			return c
		}
		return strings.Compare(b.Name(), a.Name())
	})
	out := make([]string, len(infos))
	for i, info := range infos {
		out[i] = info.Name()
	}
	return out, nil
}

// digest returns the first bytes of a file and the SHA-256 of all, in hex.
func (s *Switch) digest(name string) (head []byte, sum string, err error) {
	f, err := s.root.Open(inside(name))
	if err != nil {
		return nil, "", fmt.Errorf("no file %s", name)
	}
	defer f.Close()
	h := sha256.New()
	var prefix bytes.Buffer
	if _, err := io.CopyN(io.MultiWriter(h, &prefix), f, firmwarepackage.PrefixSize); err != nil && !errors.Is(err, io.EOF) {
		return nil, "", err
	}
	if _, err := io.Copy(h, f); err != nil {
		return nil, "", err
	}
	return prefix.Bytes(), hex.EncodeToString(h.Sum(nil)), nil
}

// readURL reads what a file URL names.
func (s *Switch) readURL(url string) ([]byte, error) {
	name, local := strings.CutPrefix(url, "file://")
	if !local {
		return nil, errors.New("only file URLs can be read")
	}
	raw, err := s.root.ReadFile(inside(name))
	if err != nil {
		return nil, fmt.Errorf("no file %s", name)
	}
	return raw, nil
}

func (s *Switch) copyIn(url, to string) error {
	raw, err := s.readURL(url)
	if err != nil {
		return err
	}
	return s.root.WriteFile(inside(to), raw, 0o644)
}

// ReadFile returns the content of a file of the switch.
func (s *Switch) ReadFile(name string) ([]byte, error) { return s.root.ReadFile(inside(name)) }

// WriteFile puts a file on the switch.
func (s *Switch) WriteFile(name string, content []byte) error {
	if err := s.root.MkdirAll(path.Dir(inside(name)), 0o755); err != nil {
		return err
	}
	return s.root.WriteFile(inside(name), content, 0o644)
}

// RemoveFile takes a file from the switch.
func (s *Switch) RemoveFile(name string) error { return s.root.Remove(inside(name)) }

// FileMode returns the permissions of a file.
func (s *Switch) FileMode(name string) (os.FileMode, error) {
	info, err := s.root.Stat(inside(name))
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), nil
}

// Files returns the paths of all files below a directory, "/" for all, sorted.
func (s *Switch) Files(dir string) []string {
	var out []string
	_ = fs.WalkDir(s.root.FS(), inside(dir), func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, "/"+name)
		}
		return nil // what cannot be read is not listed
	})
	slices.Sort(out)
	return out
}
