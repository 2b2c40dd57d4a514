// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
)

// Package is the header of a PLDM firmware update package. Offsets count from
// the start of the package.
type Package struct {
	// Revision is 1 to 4, from the package UUID.
	Revision int
	// HeaderSize is what the header says of itself; some tools write 0.
	HeaderSize int
	// HeaderEnd is where the header really ends.
	HeaderEnd int64
	// Released is the release time, zero when it makes no sense.
	Released time.Time
	Version  string
	Records  []DeviceRecord
	// Downstream are the records of devices behind the device, from revision 2 on.
	Downstream []DownstreamRecord
	Components []Component
	// HeaderChecksum is the CRC-32 over the header.
	HeaderChecksum Checksum
	// PayloadChecksum is the stored CRC-32 over the images, in revision 4 only.
	PayloadChecksum uint32
}

// Checksum is a stored checksum beside the one of what was read.
type Checksum struct{ Stored, Computed uint32 }

// Valid reports whether the two are equal.
func (c Checksum) Valid() bool { return c.Stored == c.Computed }

// Component is one image of the package.
type Component struct {
	Classification   uint16
	Identifier       uint16
	ComparisonStamp  uint32
	Options          uint16
	ActivationMethod uint16
	// Offset and Size place the image in the package, in bytes.
	Offset  uint32
	Size    uint32
	Version string
	// Opaque is data for the device about the image, from revision 3 on.
	Opaque Section
}

// Section places the image in the package.
func (c Component) Section() Section { return Section{Offset: int64(c.Offset), Size: int64(c.Size)} }

// uuidSize is the length of the UUID that a package begins with.
const uuidSize = 16

// revisionOf knows the package UUIDs of DSP0267.
func revisionOf(id []byte) int {
	switch hex.EncodeToString(id) {
	case "f018878ccb7d49439800a02f059aca02":
		return 1
	case "1244d2648d7d4718a030fc8a56587d5a":
		return 2
	case "3119ce2fe80a4a99af6d46f8b121f6bf":
		return 3
	case "7b291c996db64208801b02026e463c78":
		return 4
	default:
		return 0
	}
}

// ReadPackage reads the header from r. Errors are ErrNotPLDM, a *FormatError, or
// those of r. Checksums are told and not judged: see Verify.
func ReadPackage(r io.Reader) (*Package, error) {
	c := &cursor{r: r, sum: crc32.NewIEEE(), room: maxHeader + 1}
	id := c.bytes("package UUID", uuidSize)
	if errors.Is(c.err, io.ErrUnexpectedEOF) {
		return nil, ErrNotPLDM
	}
	if c.err != nil {
		return nil, c.err
	}
	p := &Package{Revision: revisionOf(id)}
	if p.Revision == 0 {
		return nil, ErrNotPLDM
	}
	_ = c.u8("format revision")
	p.HeaderSize = int(c.u16("header size"))
	p.Released = timestamp(c.bytes("release time", 13))
	bitmapAt := c.offset
	bitmapBits := int(c.u16("component bitmap length"))
	if bitmapBits > maxBitmapBits {
		c.fail(bitmapAt, "component bitmap length", fmt.Errorf("%d bits, at most %d", bitmapBits, maxBitmapBits))
	}
	p.Version = c.text("package version", c.u8("package version type"), int(c.u8("package version length")))
	masks := p.readRecords(c, bitmapBits)
	if p.Revision >= 2 {
		masks = append(masks, p.readDownstream(c, bitmapBits)...)
	}
	p.readComponents(c)
	p.readChecksums(c)
	if c.err == nil && p.HeaderSize != 0 && c.offset > int64(p.HeaderSize) {
		c.fail(headerSizeAt, "header size", fmt.Errorf("says %d, the header has %d", p.HeaderSize, c.offset))
	}
	p.HeaderEnd = c.offset
	for _, m := range masks {
		p.assign(c, m)
	}
	if c.err != nil {
		return nil, c.err
	}
	return p, nil
}

const (
	// headerSizeAt is where the header tells its size.
	headerSizeAt = 17
	// maxHeader is the most that it can tell, in 16 bits. Opaque data of images, which
	// has lengths of 32 bits, does not count: it is not kept.
	maxHeader = 1<<16 - 1
)

func (p *Package) readChecksums(c *cursor) {
	p.HeaderChecksum.Computed = c.sum.Sum32()
	p.HeaderChecksum.Stored = c.u32("header checksum")
	if p.Revision >= 4 {
		p.PayloadChecksum = c.u32("payload checksum")
	}
}

func (p *Package) readComponents(c *cursor) {
	count := int(c.u16("component image count"))
	for i := 0; i < count && c.err == nil; i++ {
		image := Component{
			Classification:   c.u16("component classification"),
			Identifier:       c.u16("component identifier"),
			ComparisonStamp:  c.u32("component comparison stamp"),
			Options:          c.u16("component options"),
			ActivationMethod: c.u16("component activation method"),
			Offset:           c.u32("component offset"),
			Size:             c.u32("component size"),
		}
		image.Version = c.text("component version", c.u8("component version type"), int(c.u8("component version length")))
		if p.Revision >= 3 {
			image.Opaque = c.skip("component opaque data", int64(c.u32("component opaque data length")))
		}
		p.Components = append(p.Components, image)
	}
}
