// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"time"
)

// maxBitmapBits is the most components one device record can name.
const maxBitmapBits = 64

// ErrNotPLDM says that a file does not begin with a known package UUID.
var ErrNotPLDM = errors.New("not a PLDM firmware package")

// FormatError is a package whose header does not hold together.
type FormatError struct {
	// Offset is where the field begins, in bytes.
	Offset int64
	// Field names it.
	Field string
	Err   error
}

// Error gives offset and field.
func (e *FormatError) Error() string {
	return fmt.Sprintf("firmware package, offset %d, %s: %v", e.Offset, e.Field, e.Err)
}

// Unwrap gives the cause, io.ErrUnexpectedEOF for a truncated file.
func (e *FormatError) Unwrap() error { return e.Err }

// Package is the header of a PLDM firmware update package.
type Package struct {
	// Revision is 1 to 4, from the package UUID.
	Revision int
	// HeaderSize is what the header says of itself; some tools write 0.
	HeaderSize int
	// Released is the release time, zero when it makes no sense.
	Released time.Time
	Version  string
	Records  []DeviceRecord
	// DownstreamRecords counts records of devices behind the device; they are
	// skipped.
	DownstreamRecords int
	Components        []Component
}

// DeviceRecord says what a kind of device gets from the package.
type DeviceRecord struct {
	OptionFlags uint32
	// SetVersion names the set of images; NVIDIA lists the component names in it,
	// separated by commas.
	SetVersion  string
	Descriptors []Descriptor
	// Components are indexes into Package.Components.
	Components []int
}

// Descriptor types of DSP0267, table 7.
const (
	DescriptorPCIVendor     uint16 = 0x0000
	DescriptorIANA          uint16 = 0x0001
	DescriptorUUID          uint16 = 0x0002
	DescriptorPCIDevice     uint16 = 0x0100
	DescriptorVendorDefined uint16 = 0xFFFF
)

// Descriptor identifies a device.
type Descriptor struct {
	Type uint16
	// Title names a vendor-defined descriptor.
	Title string
	Data  []byte
}

// Component is one image of the package.
type Component struct {
	Classification   uint16
	Identifier       uint16
	ComparisonStamp  uint32
	Options          uint16
	ActivationMethod uint16
	// Offset and Size place the image in the file, in bytes.
	Offset  uint32
	Size    uint32
	Version string
}

// Name is the name a record gives its n-th component, empty when it names fewer.
func (r DeviceRecord) Name(n int) string {
	names := strings.Split(r.SetVersion, ",")
	if n < 0 || n >= len(names) {
		return ""
	}
	return strings.TrimSpace(names[n])
}

// SKU is the hex value of the vendor-defined descriptor that holds the SKU of the
// application processor, else of the root of trust; empty without one.
func (r DeviceRecord) SKU() string {
	for _, title := range []string{"APSKU", "ECSKU", "AXSKU"} {
		for _, d := range r.Descriptors {
			if d.Type == DescriptorVendorDefined && strings.EqualFold(d.Title, title) {
				return "0x" + hex.EncodeToString(d.Data)
			}
		}
	}
	return ""
}

// CheckSize refuses a file that is too short for the images it should carry.
func (p *Package) CheckSize(size int64) error {
	for i, c := range p.Components {
		if end := int64(c.Offset) + int64(c.Size); end > size {
			return &FormatError{Offset: int64(c.Offset), Field: fmt.Sprintf("component image %d", i),
				Err: fmt.Errorf("ends at %d, the file at %d: %w", end, size, io.ErrUnexpectedEOF)}
		}
	}
	return nil
}

// revisionOf knows the package UUIDs of DSP0267.
func revisionOf(id []byte) int {
	for i, known := range []string{
		"f018878ccb7d49439800a02f059aca02",
		"1244d2648d7d4718a030fc8a56587d5a",
		"3119ce2fe80a4a99af6d46f8b121f6bf",
		"7b291c996db64208801b02026e463c78",
	} {
		if hex.EncodeToString(id) == known {
			return i + 1
		}
	}
	return 0
}

// ReadPackage reads the header from r. Errors are ErrNotPLDM, a *FormatError, or
// those of r.
func ReadPackage(r io.Reader) (*Package, error) {
	c := &cursor{r: r}
	id := c.bytes("package UUID", 16)
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
	masks, masksAt := p.readRecords(c, bitmapBits)
	if p.Revision >= 2 {
		p.skipDownstream(c)
	}
	p.readComponents(c)
	_ = c.u32("header checksum")
	if p.Revision >= 4 {
		_ = c.u32("payload checksum")
	}
	if c.err == nil && p.HeaderSize != 0 && c.offset > int64(p.HeaderSize) {
		c.fail(17, "header size", fmt.Errorf("says %d, the header has %d", p.HeaderSize, c.offset))
	}
	for i, mask := range masks {
		p.assign(c, i, mask, masksAt[i])
	}
	if c.err != nil {
		return nil, c.err
	}
	return p, nil
}

// readRecords reads the device records and gives their component bitmaps, which
// can be resolved only when the images are known.
func (p *Package) readRecords(c *cursor, bitmapBits int) (masks []uint64, at []int64) {
	count := int(c.u8("device record count"))
	for i := 0; i < count && c.err == nil; i++ {
		inner := c.record(fmt.Sprintf("device record %d", i))
		descriptors := int(inner.u8("descriptor count"))
		record := DeviceRecord{OptionFlags: inner.u32("option flags")}
		setType, setLength := inner.u8("set version type"), int(inner.u8("set version length"))
		dataLength := int(inner.u16("package data length"))
		if p.Revision >= 4 {
			_ = inner.u32("reference manifest length")
		}
		at = append(at, inner.offset)
		masks = append(masks, inner.bitmap(bitmapBits))
		record.SetVersion = inner.text("set version", setType, setLength)
		for n := 0; n < descriptors && inner.err == nil; n++ {
			record.Descriptors = append(record.Descriptors, inner.descriptor(n))
		}
		inner.skip("package data", int64(dataLength))
		if c.err == nil {
			c.err = inner.err
		}
		p.Records = append(p.Records, record)
	}
	return masks, at
}

func (p *Package) skipDownstream(c *cursor) {
	p.DownstreamRecords = int(c.u8("downstream record count"))
	for i := 0; i < p.DownstreamRecords && c.err == nil; i++ {
		_ = c.record(fmt.Sprintf("downstream record %d", i))
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
			c.skip("component opaque data", int64(c.u32("component opaque data length")))
		}
		p.Components = append(p.Components, image)
	}
}

// assign turns the bitmap of a record into indexes.
func (p *Package) assign(c *cursor, record int, mask uint64, at int64) {
	for mask != 0 && c.err == nil {
		bit := bits.TrailingZeros64(mask)
		mask &^= 1 << bit
		if bit >= len(p.Components) {
			c.fail(at, fmt.Sprintf("component bitmap of record %d", record), fmt.Errorf("names image %d of %d", bit, len(p.Components)))
			return
		}
		p.Records[record].Components = append(p.Records[record].Components, bit)
	}
}

// record reads the length of a record and gives a cursor over its rest.
func (c *cursor) record(field string) *cursor {
	at := c.offset
	length := int(c.u16(field + " length"))
	if c.err == nil && length < 2 {
		c.fail(at, field+" length", fmt.Errorf("%d is too short", length))
	}
	start := c.offset
	raw := c.bytes(field, max(length-2, 0))
	return &cursor{r: bytes.NewReader(raw), offset: start, err: c.err}
}

func (c *cursor) bitmap(width int) uint64 {
	var mask uint64
	for i, b := range c.bytes("component bitmap", (width+7)/8) {
		mask |= uint64(b) << (8 * i)
	}
	return mask
}

func (c *cursor) descriptor(n int) Descriptor {
	field := fmt.Sprintf("descriptor %d", n)
	d := Descriptor{Type: c.u16(field + " type")}
	length := int(c.u16(field + " length"))
	at := c.offset
	d.Data = c.bytes(field, length)
	if d.Type != DescriptorVendorDefined || c.err != nil {
		return d
	}
	if n == 0 {
		c.fail(at, field, errors.New("the first descriptor cannot be vendor-defined"))
		return d
	}
	inner := &cursor{r: bytes.NewReader(d.Data), offset: at}
	d.Title = inner.text(field+" title", inner.u8(field+" title type"), int(inner.u8(field+" title length")))
	if inner.err != nil {
		c.err = inner.err
		return d
	}
	d.Data = d.Data[inner.offset-at:]
	return d
}
