// SPDX-License-Identifier: Apache-2.0

package firmwarepackage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// ErrNotPackage is wrapped by errors of ParseHeader.
var ErrNotPackage = errors.New("not a PLDM package of header revision 1")

// Header is the part of a package's header that the simulator uses.
type Header struct {
	// Version is the package version string.
	Version string
	// Images pairs the names of the set-version strings with the versions of the images they select.
	Images []Image
	// ChecksumOK says whether the header checksum is the CRC-32 of the header. Packages are used either way.
	ChecksumOK bool
}

// ParseHeader reads the header of a package from the first bytes of a file. Payloads need not be there.
func ParseHeader(b []byte) (Header, error) {
	r := reader{buf: b}
	if id := r.bytes(16); r.short || [16]byte(id) != packageUUID {
		return Header{}, fmt.Errorf("%w: other UUID", ErrNotPackage)
	}
	r.skip(1 + 2 + 13)
	bitmap := (int(r.u16()) + 7) / 8
	if bitmap > maxComponents/8 {
		return Header{}, fmt.Errorf("%w: component bitmap of %d bytes", ErrNotPackage, bitmap)
	}
	h := Header{Version: r.text()}

	var selections []selection
	for range r.u8() {
		selections = append(selections, r.record(bitmap)...)
	}
	versions := make([]string, r.u16())
	for i := range versions {
		r.skip(20)
		versions[i] = r.text()
		if r.short {
			break
		}
	}
	end := r.at
	sum := r.u32()
	if r.short {
		return Header{}, fmt.Errorf("%w: header is cut off", ErrNotPackage)
	}
	h.ChecksumOK = sum == crc32.ChecksumIEEE(b[:end])
	for _, s := range selections {
		if s.index >= len(versions) {
			return Header{}, fmt.Errorf("%w: image %d of %d", ErrNotPackage, s.index, len(versions))
		}
		h.Images = append(h.Images, Image{Name: s.name, Version: versions[s.index]})
	}
	return h, nil
}

// selection is one set bit of a record with the name at its place in the set-version string.
type selection struct {
	index int
	name  string
}

// reader walks a little-endian buffer; short is set once it ran out, and reads then give zeros.
type reader struct {
	buf   []byte
	at    int
	short bool
}

func (r *reader) bytes(n int) []byte {
	if r.short || n > len(r.buf)-r.at {
		r.short = true
		return make([]byte, n)
	}
	out := r.buf[r.at : r.at+n]
	r.at += n
	return out
}

func (r *reader) skip(n int)  { r.bytes(n) }
func (r *reader) u8() uint8   { return r.bytes(1)[0] }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.bytes(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.bytes(4)) }

// text reads a string: type, length, characters.
func (r *reader) text() string {
	r.skip(1)
	return string(r.bytes(int(r.u8())))
}

func (r *reader) record(bitmapBytes int) []selection {
	start := r.at
	length := int(r.u16())
	r.skip(1 + 4 + 1)
	nameLength := int(r.u8())
	r.skip(2)
	bitmap := r.bytes(bitmapBytes)
	names := strings.Split(string(r.bytes(nameLength)), ",")
	if r.short || length < r.at-start {
		r.short = true
		return nil
	}
	r.skip(length - (r.at - start))

	var out []selection
	for i := range bitmapBytes * 8 {
		if bitmap[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		name := ""
		if len(out) < len(names) {
			name = strings.TrimSpace(names[len(out)])
		}
		out = append(out, selection{index: i, name: name})
	}
	return out
}
