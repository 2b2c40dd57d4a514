// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"encoding/hex"
	"fmt"
	"math/bits"
	"strings"
)

// maxBitmapBits is the most components one device record can name.
const maxBitmapBits = 64

// Section is a part of a file, in bytes from its start.
type Section struct {
	Offset int64
	Size   int64
}

// End is the offset behind the section.
func (s Section) End() int64 { return s.Offset + s.Size }

// DeviceRecord says what a kind of device gets from the package.
type DeviceRecord struct {
	OptionFlags uint32
	// SetVersion names the set of images; NVIDIA lists the component names in it,
	// separated by commas.
	SetVersion  string
	Descriptors []Descriptor
	// Components are indexes into Package.Components.
	Components []int
	// PackageData is what the device gets before the images.
	PackageData Section
	// Manifest is the reference manifest of revision 4.
	Manifest Section
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
// application processor, else of the root of trust, else of an auxiliary part;
// empty without one.
func (r DeviceRecord) SKU() string { return r.sku(TitleAPSKU, TitleECSKU, TitleAXSKU) }

// SKUOf is the SKU that the record's n-th component is told apart by: the one of
// the root of trust for an ERoT, else as SKU.
func (r DeviceRecord) SKUOf(n int) string {
	if isRoot(r.Name(n)) {
		return r.sku(TitleECSKU, TitleAPSKU, TitleAXSKU)
	}
	return r.SKU()
}

// isRoot reports whether a component is a root of trust by its name.
func isRoot(name string) bool { return strings.Contains(strings.ToLower(name), "erot") }

func (r DeviceRecord) sku(titles ...string) string {
	for _, title := range titles {
		if data, ok := vendor(r.Descriptors, title); ok {
			return "0x" + hex.EncodeToString(data)
		}
	}
	return ""
}

// DownstreamRecord says what a kind of device behind the updated one gets.
type DownstreamRecord struct {
	OptionFlags uint32
	// MinVersion is the lowest version from which the device can activate the
	// images by itself; MinStamp is its comparison stamp, when the record has one.
	MinVersion  string
	MinStamp    *uint32
	Descriptors []Descriptor
	// Components are indexes into Package.Components.
	Components  []int
	PackageData Section
	Manifest    Section
}

// flagSelfContained is the option of a downstream device that can activate its
// images without its parent; only then its record has a comparison stamp.
const flagSelfContained = 1 << 0

// applicable is a record's bitmap, which can be resolved only when the images
// are known.
type applicable struct {
	mask  uint64
	at    int64
	owner string
	into  func(component int)
}

// readRecords reads the device records.
func (p *Package) readRecords(c *cursor, bitmapBits int) []applicable {
	count := int(c.u8("device record count"))
	p.Records = make([]DeviceRecord, 0, count)
	var masks []applicable
	for i := 0; i < count && c.err == nil; i++ {
		inner := c.record(fmt.Sprintf("device record %d", i))
		descriptors := int(inner.u8("descriptor count"))
		record := DeviceRecord{OptionFlags: inner.u32("option flags")}
		setType, setLength := inner.u8("set version type"), int(inner.u8("set version length"))
		data, manifest := p.lengths(inner)
		at := inner.offset
		mask := inner.bitmap(bitmapBits)
		record.SetVersion = inner.text("set version", setType, setLength)
		record.Descriptors = inner.descriptors(descriptors)
		record.PackageData = inner.skip("package data", data)
		record.Manifest = inner.skip("reference manifest", manifest)
		c.err = firstError(c.err, inner.err)
		p.Records = append(p.Records, record)
		masks = append(masks, applicable{mask, at, fmt.Sprintf("record %d", i), func(component int) {
			p.Records[i].Components = append(p.Records[i].Components, component)
		}})
	}
	return masks
}

// readDownstream reads the records of devices behind the device (revision 2 on).
func (p *Package) readDownstream(c *cursor, bitmapBits int) []applicable {
	count := int(c.u8("downstream record count"))
	p.Downstream = make([]DownstreamRecord, 0, count)
	var masks []applicable
	for i := 0; i < count && c.err == nil; i++ {
		inner := c.record(fmt.Sprintf("downstream record %d", i))
		descriptors := int(inner.u8("descriptor count"))
		record := DownstreamRecord{OptionFlags: inner.u32("option flags")}
		minType, minLength := inner.u8("minimum version type"), int(inner.u8("minimum version length"))
		data, manifest := p.lengths(inner)
		at := inner.offset
		mask := inner.bitmap(bitmapBits)
		record.MinVersion = inner.text("minimum version", minType, minLength)
		if record.OptionFlags&flagSelfContained != 0 {
			stamp := inner.u32("minimum version comparison stamp")
			record.MinStamp = &stamp
		}
		record.Descriptors = inner.descriptors(descriptors)
		record.PackageData = inner.skip("package data", data)
		record.Manifest = inner.skip("reference manifest", manifest)
		c.err = firstError(c.err, inner.err)
		p.Downstream = append(p.Downstream, record)
		masks = append(masks, applicable{mask, at, fmt.Sprintf("downstream record %d", i), func(component int) {
			p.Downstream[i].Components = append(p.Downstream[i].Components, component)
		}})
	}
	return masks
}

// lengths reads the sizes of what stands at the end of a record.
func (p *Package) lengths(c *cursor) (data, manifest int64) {
	data = int64(c.u16("package data length"))
	if p.Revision >= 4 {
		manifest = int64(c.u32("reference manifest length"))
	}
	return data, manifest
}

// assign turns a record's bitmap into indexes.
func (p *Package) assign(c *cursor, a applicable) {
	for mask := a.mask; mask != 0 && c.err == nil; {
		bit := bits.TrailingZeros64(mask)
		mask &^= 1 << bit
		if bit >= len(p.Components) {
			c.fail(a.at, "component bitmap of "+a.owner, fmt.Errorf("names image %d of %d", bit, len(p.Components)))
			return
		}
		a.into(bit)
	}
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
