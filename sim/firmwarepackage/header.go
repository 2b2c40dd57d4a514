// SPDX-License-Identifier: Apache-2.0

package firmwarepackage

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// ErrNotPackage is wrapped by errors of ParseHeader.
var ErrNotPackage = errors.New("not a PLDM package")

// Header is the part of a package's header that the simulator uses.
type Header struct {
	// Version is the package version string.
	Version string
	// Revision is the header format revision, 1 to 4.
	Revision int
	// DeviceUUID is the first descriptor of the first record, when that is a UUID, in hex.
	DeviceUUID string
	// Images pairs the names of the set-version strings with the versions of the images they select.
	Images []Image
	// ChecksumOK says whether the header checksum is the CRC-32 of the header. Packages are used either way.
	ChecksumOK bool
}

// ParseHeader reads the header of a package from the first bytes of a file. Payloads need not be there.
func ParseHeader(b []byte) (Header, error) {
	r := reader{buf: b}
	id := [16]byte(r.bytes(16))
	for revision := 1; revision <= 4; revision++ {
		if id == packageUUID(revision) {
			r.revision = revision
		}
	}
	if r.short || r.revision == 0 {
		return Header{}, fmt.Errorf("%w: other UUID", ErrNotPackage)
	}
	r.skip(1 + 2 + 13)
	bitmap := (int(r.u16()) + 7) / 8
	if bitmap > maxComponents/8 {
		return Header{}, fmt.Errorf("%w: component bitmap of %d bytes", ErrNotPackage, bitmap)
	}
	h := Header{Version: r.text(), Revision: r.revision}

	var selections []selection
	for i := range r.u8() {
		chosen, uuid := r.record(bitmap)
		selections = append(selections, chosen...)
		if i == 0 {
			h.DeviceUUID = uuid
		}
	}
	if r.revision >= 2 {
		for range r.u8() {
			r.skip(max(int(r.u16())-2, 0))
		}
	}
	table := r.images()
	end := r.at
	sum := r.u32()
	if r.short {
		return Header{}, fmt.Errorf("%w: header is cut off", ErrNotPackage)
	}
	h.ChecksumOK = sum == crc32.ChecksumIEEE(b[:end])
	for _, s := range selections {
		if s.index >= len(table) {
			return Header{}, fmt.Errorf("%w: image %d of %d", ErrNotPackage, s.index, len(table))
		}
		entry := table[s.index]
		entry.Name, entry.SKU = s.name, s.sku
		h.Images = append(h.Images, entry)
	}
	return h, nil
}

// selection is one set bit of a record with the name at its place in the set-version string.
type selection struct {
	index int
	name  string
	sku   string
}

// reader walks a little-endian buffer; short is set once it ran out, and reads then give zeros.
type reader struct {
	buf   []byte
	at    int
	short bool

	revision int
}

func (r *reader) bytes(n int) []byte {
	if r.short || n > len(r.buf)-r.at {
		r.short = true
		// Lengths of the broken rest may be anything; no single field that is read is longer than this.
		return make([]byte, min(n, 1<<16))
	}
	out := r.buf[r.at : r.at+n]
	r.at += n
	return out
}

func (r *reader) skip(n int) {
	if r.short || n > len(r.buf)-r.at {
		r.short = true
		return
	}
	r.at += n
}

func (r *reader) u8() uint8   { return r.bytes(1)[0] }
func (r *reader) u16() uint16 { return binary.LittleEndian.Uint16(r.bytes(2)) }
func (r *reader) u32() uint32 { return binary.LittleEndian.Uint32(r.bytes(4)) }

// text reads a string: type, length, characters.
func (r *reader) text() string {
	r.skip(1)
	return string(r.bytes(int(r.u8())))
}

// images reads the component image area: versions and stamps.
func (r *reader) images() []Image {
	out := make([]Image, r.u16())
	for i := range out {
		r.skip(4)
		out[i].Stamp = r.u32()
		r.skip(12)
		out[i].Version = r.text()
		if r.revision >= 3 {
			r.skip(int(r.u32()))
		}
		if r.short {
			return nil
		}
	}
	return out
}

// record reads a device record: what it selects, and its first descriptor if that is a UUID.
func (r *reader) record(bitmapBytes int) ([]selection, string) {
	start := r.at
	length := int(r.u16())
	descriptors := int(r.u8())
	r.skip(4 + 1)
	nameLength := int(r.u8())
	r.skip(2)
	if r.revision >= 4 {
		r.skip(4)
	}
	bitmap := r.bytes(bitmapBytes)
	names := strings.Split(string(r.bytes(nameLength)), ",")
	uuid, sku := r.descriptors(descriptors)
	if r.short || length < r.at-start {
		r.short = true
		return nil, ""
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
		out = append(out, selection{index: i, name: name, sku: sku})
	}
	return out, uuid
}

// descriptors reads the descriptors of a record for a leading UUID and a SKU.
func (r *reader) descriptors(count int) (uuid, sku string) {
	for i := range count {
		kind := r.u16()
		data := r.bytes(int(r.u16()))
		switch {
		case i == 0 && kind == DescriptorUUID:
			uuid = hex.EncodeToString(data)
		case kind == DescriptorVendor && len(data) >= 2 && len(data) >= 2+int(data[1]):
			title := string(data[2 : 2+data[1]])
			if title == "APSKU" || title == "ECSKU" || title == "AXSKU" {
				sku = hex.EncodeToString(data[2+data[1]:])
			}
		}
	}
	return uuid, sku
}
