// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// BundleType is the content type of bundles.
const BundleType = "application/gzip"

// ManifestName is the last entry of a bundle.
const ManifestName = "manifest.json"

// Limits of a bundle, in bytes before compression.
type Limits struct {
	// File is the most that is kept of one file.
	File int
	// Total is the most that is kept of all files, but the manifest.
	Total int
}

// Bundle writes files into a tar.gz as they come.
type Bundle struct {
	limits Limits
	now    time.Time
	gz     *gzip.Writer
	tar    *tar.Writer
	files  []ManifestFile
	names  map[string]bool
	used   int
	// documents are the JSON files, whole, for the rules.
	documents Evidence
}

// errName says that a file cannot have the name it was given.
var errName = errors.New("diagnostics: unusable file name")

// NewBundle returns a bundle whose files are all dated now.
func NewBundle(w io.Writer, limits Limits, now time.Time) *Bundle {
	gz := gzip.NewWriter(w)
	return &Bundle{
		limits: limits, now: now, gz: gz, tar: tar.NewWriter(gz),
		names: map[string]bool{ManifestName: true}, documents: Evidence{},
	}
}

// Sink is where one collector puts its files.
func (b *Bundle) Sink(collector string) Sink { return &sink{b, collector} }

// Evidence is what the documents of the bundle hold, also where the files in it
// were cut.
func (b *Bundle) Evidence() Evidence { return b.documents }

type sink struct {
	b         *Bundle
	collector string
}

// JSON adds a document.
func (s *sink) JSON(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	doc, err := decodeMasked(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	pretty, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	if err := s.b.add(s.collector, name, append(pretty, '\n')); err != nil {
		return err
	}
	s.b.documents[name] = doc
	return nil
}

// Text adds plain text.
func (s *sink) Text(name, content string) error {
	return s.b.add(s.collector, name, []byte(MaskText(content)))
}

// add writes a file, cut with a mark where it is too large, or only notes it when
// the bundle is full.
func (b *Bundle) add(collector, name string, content []byte) error {
	if name == "" || path.Clean(name) != name || path.IsAbs(name) || strings.HasPrefix(name, "..") || b.names[name] {
		return fmt.Errorf("%w: %q", errName, name)
	}
	b.names[name] = true
	file := ManifestFile{Name: name, Collector: collector, OriginalSize: int64(len(content))}
	left := b.limits.Total - b.used
	if left <= 0 {
		file.Omitted = true
		b.files = append(b.files, file)
		return nil
	}
	if keep := min(b.limits.File, left); len(content) > keep {
		mark := fmt.Sprintf("\n[cut here: %d of %d bytes]\n", keep, len(content))
		content = append(bytes.Clone(content[:keep]), mark...)
		file.Truncated = true
	}
	b.used += len(content)
	sum := sha256.Sum256(content)
	file.Size, file.SHA256 = int64(len(content)), hex.EncodeToString(sum[:])
	if err := b.write(name, content); err != nil {
		return err
	}
	b.files = append(b.files, file)
	return nil
}

func (b *Bundle) write(name string, content []byte) error {
	err := b.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644, ModTime: b.now, Format: tar.FormatPAX,
	})
	if err == nil {
		_, err = b.tar.Write(content)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// Close writes the manifest, with the list of files, as the last entry and ends
// the bundle.
func (b *Bundle) Close(m *Manifest) error {
	m.Files = b.files
	content, err := m.encode()
	if err != nil {
		return err
	}
	if err := b.write(ManifestName, content); err != nil {
		return err
	}
	if err := errors.Join(b.tar.Close(), b.gz.Close()); err != nil {
		return fmt.Errorf("end bundle: %w", err)
	}
	return nil
}
