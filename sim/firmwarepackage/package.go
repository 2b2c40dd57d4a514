// SPDX-License-Identifier: Apache-2.0

// Package firmwarepackage writes and reads the firmware files that the simulated devices understand.
//
// Three forms carry versions through an upload:
//
//   - A PLDM firmware update package of header revision 1 (DSP0267), written by [Build]. The package names its
//     components in the set-version strings of its device records; each component image carries its version.
//   - A raw image, written by [Raw]: its first line is "racksim-image: NAME", because an octet-stream push
//     transmits no file name. NAME follows name_VERSION.ext.
//   - A power shelf archive, written by [ShelfArchive]: a tar whose MANIFEST has purpose=, version= and model=.
//
// [Identify] recognises all three from the first bytes of a file and falls back to the file name.
package firmwarepackage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// ErrInvalidSpec is wrapped by errors of Build about a package that cannot be written.
var ErrInvalidSpec = errors.New("invalid firmware package")

const (
	// maxComponents is the widest component bitmap that readers accept, in bits.
	maxComponents = 64
	// asciiString is the DSP0267 string type for ASCII text.
	asciiString = 1
	// nvidiaEnterprise is NVIDIA's IANA enterprise number.
	nvidiaEnterprise = 5703
	// descriptorIANA and descriptorVendor are DSP0267 descriptor types.
	descriptorIANA   = 0x0001
	descriptorVendor = 0xFFFF
	// firmwareClass is the component classification "Firmware".
	firmwareClass = 0x000A
)

// packageUUID identifies header revision 1 (DSP0267 1.0).
var packageUUID = [16]byte{
	0xf0, 0x18, 0x87, 0x8c, 0xcb, 0x7d, 0x49, 0x43, 0x98, 0x00, 0xa0, 0x2f, 0x05, 0x9a, 0xca, 0x02,
}

// Component is one image of a package.
type Component struct {
	// Name is the component's name as the set-version string carries it, for example "BMC", "GPU" or a full
	// inventory name such as "HGX_FW_GPU_0". It must not contain a comma.
	Name string
	// Version is the version the component reports once the image is active.
	Version string
	// SKU is an optional APSKU vendor descriptor value.
	SKU []byte
	// Identifier is the component identifier; 0 means position + 1.
	Identifier uint16
	// Stamp is the component comparison stamp.
	Stamp uint32
	// Payload is the image; empty means a short text made of name and version.
	Payload []byte
}

// Spec describes a package.
type Spec struct {
	// Version is the package version string, for example "GB200-P4975_0004". HGX markers in it (P4975, HGX, HMC)
	// make a compute tray treat the package as one for the HMC.
	Version string
	// Components are the images, at most 64.
	Components []Component
	// Combined puts all components into one device record with a comma separated set-version string, instead
	// of one record for each component.
	Combined bool
	// Released is the package timestamp; zero writes 13 zero bytes.
	Released time.Time
}

// Build returns the package as bytes. The header checksum is the CRC-32 (IEEE) of all header bytes before it.
func Build(spec Spec) ([]byte, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	records := spec.records()
	imageTable, payload := spec.images()

	var head bytes.Buffer
	head.Write(packageUUID[:])
	head.WriteByte(1)
	sizeAt := head.Len()
	head.Write([]byte{0, 0})
	head.Write(timestamp(spec.Released))
	put16(&head, uint16(spec.bitmapBytes()*8))
	putString(&head, spec.Version)
	head.Write(records)
	tableAt := head.Len()
	size := tableAt + len(imageTable) + 4
	if size > 0xFFFF {
		return nil, fmt.Errorf("%w: header of %d bytes is over 65535", ErrInvalidSpec, size)
	}
	// Image offsets count from the start of the package, known only now.
	relocate(imageTable, len(spec.Components), uint32(size))
	head.Write(imageTable)

	out := head.Bytes()
	binary.LittleEndian.PutUint16(out[sizeAt:], uint16(size))
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	return append(out, payload...), nil
}

func (s Spec) validate() error {
	switch {
	case len(s.Components) == 0 || len(s.Components) > maxComponents:
		return fmt.Errorf("%w: %d components, need 1 to %d", ErrInvalidSpec, len(s.Components), maxComponents)
	case len(s.Version) > 255:
		return fmt.Errorf("%w: package version is longer than 255 bytes", ErrInvalidSpec)
	case s.Combined && len(s.names()) > 255:
		return fmt.Errorf("%w: component names together are longer than 255 bytes", ErrInvalidSpec)
	}
	for _, c := range s.Components {
		if c.Name == "" || strings.Contains(c.Name, ",") || len(c.Name) > 255 || len(c.Version) > 255 {
			return fmt.Errorf("%w: component %q version %q", ErrInvalidSpec, c.Name, c.Version)
		}
	}
	return nil
}

func (s Spec) names() string {
	names := make([]string, len(s.Components))
	for i, c := range s.Components {
		names[i] = c.Name
	}
	return strings.Join(names, ",")
}

func (s Spec) bitmapBytes() int { return (len(s.Components) + 7) / 8 }

// records writes the firmware device identification area with its leading count.
func (s Spec) records() []byte {
	var out bytes.Buffer
	if s.Combined {
		bitmap := make([]byte, s.bitmapBytes())
		for i := range s.Components {
			bitmap[i/8] |= 1 << (i % 8)
		}
		out.WriteByte(1)
		out.Write(record(bitmap, s.names(), s.Components[0].SKU))
		return out.Bytes()
	}
	out.WriteByte(byte(len(s.Components)))
	for i, c := range s.Components {
		bitmap := make([]byte, s.bitmapBytes())
		bitmap[i/8] = 1 << (i % 8)
		out.Write(record(bitmap, c.Name, c.SKU))
	}
	return out.Bytes()
}

func record(bitmap []byte, setVersion string, sku []byte) []byte {
	var descriptors bytes.Buffer
	count := byte(1)
	put16(&descriptors, descriptorIANA)
	put16(&descriptors, 4)
	descriptors.Write(binary.LittleEndian.AppendUint32(nil, nvidiaEnterprise))
	if len(sku) > 0 {
		count++
		const title = "APSKU"
		put16(&descriptors, descriptorVendor)
		put16(&descriptors, uint16(2+len(title)+len(sku)))
		putString(&descriptors, title)
		descriptors.Write(sku)
	}

	const fixed = 2 + 1 + 4 + 1 + 1 + 2
	var out bytes.Buffer
	put16(&out, uint16(fixed+len(bitmap)+len(setVersion)+descriptors.Len()))
	out.WriteByte(count)
	out.Write([]byte{0, 0, 0, 0}) // device update option flags
	out.WriteByte(asciiString)
	out.WriteByte(byte(len(setVersion)))
	put16(&out, 0) // no package data
	out.Write(bitmap)
	out.WriteString(setVersion)
	out.Write(descriptors.Bytes())
	return out.Bytes()
}

// images writes the component image area, with offsets relative to the payload, and the payload.
func (s Spec) images() (table, payload []byte) {
	var out, data bytes.Buffer
	put16(&out, uint16(len(s.Components)))
	for i, c := range s.Components {
		body := c.Payload
		if len(body) == 0 {
			body = []byte(c.Name + " " + c.Version + "\n")
		}
		id := c.Identifier
		if id == 0 {
			id = uint16(i + 1)
		}
		put16(&out, firmwareClass)
		put16(&out, id)
		put32(&out, c.Stamp)
		put16(&out, 0) // component options
		put16(&out, 0) // requested activation method
		put32(&out, uint32(data.Len()))
		put32(&out, uint32(len(body)))
		putString(&out, c.Version)
		data.Write(body)
	}
	return out.Bytes(), data.Bytes()
}

// relocate adds base to the offset of each image of a table.
func relocate(table []byte, count int, base uint32) {
	const offsetAt, versionLengthAt, fixed = 12, 21, 22
	at := 2
	for range count {
		field := table[at+offsetAt:]
		binary.LittleEndian.PutUint32(field, binary.LittleEndian.Uint32(field)+base)
		at += fixed + int(table[at+versionLengthAt])
	}
}

// timestamp writes the 13 bytes of DSP0240 timestamp104 in UTC with a resolution of one second.
func timestamp(t time.Time) []byte {
	out := make([]byte, 13)
	if t.IsZero() {
		return out
	}
	t = t.UTC()
	out[5], out[6], out[7] = byte(t.Second()), byte(t.Minute()), byte(t.Hour())
	out[8], out[9] = byte(t.Day()), byte(t.Month())
	binary.LittleEndian.PutUint16(out[10:], uint16(t.Year()))
	return out
}

func put16(b *bytes.Buffer, v uint16) { b.Write(binary.LittleEndian.AppendUint16(nil, v)) }
func put32(b *bytes.Buffer, v uint32) { b.Write(binary.LittleEndian.AppendUint32(nil, v)) }

// putString writes string type, length and text, the form of all DSP0267 strings.
func putString(b *bytes.Buffer, s string) {
	b.WriteByte(asciiString)
	b.WriteByte(byte(len(s)))
	b.WriteString(s)
}
