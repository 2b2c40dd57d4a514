// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/hex"
	"net/url"
	"strings"
)

// Types of locations that are installed; all others are papers and tools.
const (
	payloadFirmware = "Firmware"
	payloadBinary   = "Binary"
)

// payloads returns the locations of a component that are installed.
func (c *Component) payloads() []Location {
	var out []Location
	for _, l := range c.Locations {
		if c.isPayload(&l) {
			out = append(out, l)
		}
	}
	return out
}

func (c *Component) isPayload(l *Location) bool {
	kind := strings.TrimSpace(l.Type)
	switch {
	case !strings.EqualFold(kind, payloadFirmware) && !strings.EqualFold(kind, payloadBinary):
		return false
	case strings.EqualFold(c.Source, sourceArm):
		return false
	case !isInBand(c.Source):
		return true
	case blank(l.Location):
		return blank(l.FileName) || flintFile(l.FileName)
	}
	base := baseName(l.Location)
	name := l.FileName
	if blank(name) {
		name = base
	}
	return flintFile(name) && flintFile(base)
}

// flintFile reports whether the tool for network devices takes such a file.
func flintFile(name string) bool {
	name = strings.ToLower(strings.TrimSpace(name))
	return strings.HasSuffix(name, ".bin") || strings.HasSuffix(name, ".pldm")
}

// isFirmware reports whether the location must name a file.
func (l *Location) isFirmware() bool {
	return strings.EqualFold(strings.TrimSpace(l.Type), payloadFirmware)
}

// file is the name of the location in a cache, "" when it has none that can be used.
func (l *Location) file() string {
	if name := baseName(l.Location); validFileName(name) {
		return name
	}
	return ""
}

// baseName is the last element of a URL's path, or of a path. Percent escapes stay:
// what a server calls the file is not for the file system to know.
func baseName(location string) string {
	location = strings.TrimSpace(location)
	if i := strings.Index(location, "://"); i >= 0 {
		rest := location[i+len("://"):]
		if j := strings.IndexAny(rest, "?#"); j >= 0 {
			rest = rest[:j]
		}
		slash := strings.IndexByte(rest, '/')
		if slash < 0 {
			return ""
		}
		location = rest[slash:]
	}
	if i := strings.LastIndexAny(location, `/\`); i >= 0 {
		return location[i+1:]
	}
	return location
}

// validFileName reports whether a file can have this name in a cache.
func validFileName(name string) bool {
	if name == "" || len(name) > 200 || name[0] == '.' {
		return false
	}
	for _, c := range []byte(name) {
		if !nameByte(c) {
			return false
		}
	}
	return true
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// maxTypeDirectory bounds the name of a directory; longer channels share one.
const maxTypeDirectory = 100

// typeDirectory is where a cache keeps the files of a release channel.
func typeDirectory(t string) string {
	b := []byte(strings.ToLower(strings.TrimSpace(t)))
	b = b[:min(len(b), maxTypeDirectory)]
	for i, c := range b {
		if !nameByte(c) {
			b[i] = '_'
		}
	}
	switch name := string(b); name {
	case "", ".", "..":
		return "prod"
	default:
		if b[0] == '.' {
			b[0] = '_'
		}
		return string(b)
	}
}

// validDigest reports whether a location promises no digest, or one that is one.
func (l *Location) validDigest() bool {
	if l.SHA256 == "" {
		return true
	}
	sum, err := hex.DecodeString(l.SHA256)
	return err == nil && len(sum) == 32
}

// wantSHA256 is the promised digest, nil when there is none.
func (l *Location) wantSHA256() []byte {
	sum, err := hex.DecodeString(l.SHA256)
	if err != nil || len(sum) == 0 {
		return nil
	}
	return sum
}

// Redact returns a location without what may be secret in it: user info, query and
// fragment of a URL.
func Redact(location string) string {
	location = strings.TrimSpace(location)
	if !strings.Contains(location, "://") {
		return location
	}
	u, err := url.Parse(location)
	if err != nil {
		// What cannot be taken apart may carry a secret anywhere.
		return "(unreadable URL)"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}

// Check looks at the packages and images of the whole manifest, as for an object
// that is to be stored.
func (m *Manifest) Check() error {
	if err := m.checkFirmware(); err != nil {
		return err
	}
	if _, err := m.Images(); err != nil {
		return err
	}
	if err := m.checkDigests(); err != nil {
		return err
	}
	if err := m.checkNames(); err != nil {
		return err
	}
	_, err := m.Artifacts()
	return err
}

// checkFirmware refuses packages that lack their release channel or file.
func (m *Manifest) checkFirmware() error {
	return m.eachPayload(func(c *Component, l *Location) error {
		board := c.board
		if blank(board) {
			board = "unknown board"
		}
		switch {
		case blank(c.Type):
			return errorf(KindFirmware, "%sfirmware component '%s' for board '%s' at %s is missing Type",
				prefixFirmware, c.Source, board, c.Context)
		case l.isFirmware() && blank(l.Location):
			return errorf(KindFirmware, "%sfirmware component '%s' for board '%s' at %s has Type \"Firmware\" but missing Location",
				prefixFirmware, c.Source, board, c.Context)
		}
		return nil
	})
}

func (m *Manifest) checkDigests() error {
	err := m.eachPayload(func(c *Component, l *Location) error {
		if !l.validDigest() {
			return errorf(KindDigest, "invalid Sha256 for component %s (%s.Locations[%d]): expected 64 hex characters",
				c.Source, c.Context, l.index)
		}
		return nil
	})
	if err != nil {
		return err
	}
	images, err := m.Images()
	if err != nil {
		return err
	}
	for i := range images {
		if l := &images[i].location; !l.validDigest() {
			return errorf(KindDigest, "invalid Sha256 for switch system image %s: expected 64 hex characters", images[i].PackageName)
		}
	}
	return nil
}

// checkNames refuses files that a cache could not keep: a stored object with one
// could never become available.
func (m *Manifest) checkNames() error {
	return m.eachPayload(func(c *Component, l *Location) error {
		if blank(l.Location) || l.file() != "" {
			return nil
		}
		return errorf(KindFirmware, "%sfirmware component '%s' at %s.Locations[%d] has a file name that cannot be stored: %q",
			prefixFirmware, c.Source, c.Context, l.index, baseName(l.Location))
	})
}

func (m *Manifest) eachPayload(do func(*Component, *Location) error) error {
	for i := range m.Boards {
		for j := range m.Boards[i].Firmware {
			c := &m.Boards[i].Firmware[j]
			for _, l := range c.payloads() {
				if err := do(c, &l); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
