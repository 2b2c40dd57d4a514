// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// Descriptor types of DSP0267, "Descriptor identifier table".
const (
	DescriptorPCIVendor          uint16 = 0x0000
	DescriptorIANA               uint16 = 0x0001
	DescriptorUUID               uint16 = 0x0002
	DescriptorPnPVendor          uint16 = 0x0003
	DescriptorACPIVendor         uint16 = 0x0004
	DescriptorIEEECompany        uint16 = 0x0005
	DescriptorSCSIVendor         uint16 = 0x0006
	DescriptorPCIDevice          uint16 = 0x0100
	DescriptorPCISubsystemVendor uint16 = 0x0101
	DescriptorPCISubsystem       uint16 = 0x0102
	DescriptorPCIRevision        uint16 = 0x0103
	DescriptorPnPProduct         uint16 = 0x0104
	DescriptorACPIProduct        uint16 = 0x0105
	DescriptorModelLong          uint16 = 0x0106
	DescriptorModelShort         uint16 = 0x0107
	DescriptorSCSIProduct        uint16 = 0x0108
	DescriptorUBMController      uint16 = 0x0109
	DescriptorVendorDefined      uint16 = 0xFFFF
)

// Titles of the vendor-defined descriptors that hold a SKU: of the application
// processor, of the root of trust that guards it, and of an auxiliary part.
const (
	TitleAPSKU = "APSKU"
	TitleECSKU = "ECSKU"
	TitleAXSKU = "AXSKU"
)

var descriptorNames = map[uint16]string{
	DescriptorPCIVendor: "PCI vendor", DescriptorIANA: "IANA enterprise", DescriptorUUID: "UUID",
	DescriptorPnPVendor: "PnP vendor", DescriptorACPIVendor: "ACPI vendor", DescriptorIEEECompany: "IEEE company",
	DescriptorSCSIVendor: "SCSI vendor", DescriptorPCIDevice: "PCI device",
	DescriptorPCISubsystemVendor: "PCI subsystem vendor", DescriptorPCISubsystem: "PCI subsystem",
	DescriptorPCIRevision: "PCI revision", DescriptorPnPProduct: "PnP product", DescriptorACPIProduct: "ACPI product",
	DescriptorModelLong: "model", DescriptorModelShort: "model (short)", DescriptorSCSIProduct: "SCSI product",
	DescriptorUBMController: "UBM controller",
}

// Descriptor identifies a device.
type Descriptor struct {
	Type uint16
	// Title names a vendor-defined descriptor.
	Title string
	Data  []byte
}

// Name says what the descriptor identifies: the title of a vendor-defined one,
// else the name of its type, or the type's number.
func (d Descriptor) Name() string {
	if d.Type == DescriptorVendorDefined {
		return d.Title
	}
	if name, known := descriptorNames[d.Type]; known {
		return name
	}
	return fmt.Sprintf("type 0x%04x", d.Type)
}

// Value is the content for people: UUIDs in their usual form, enterprise numbers
// in decimal, PCI ids in hex as lspci shows them, model names and vendor words as
// text, all else as the bytes in hex.
func (d Descriptor) Value() string {
	switch d.Type {
	case DescriptorUUID:
		if id, err := uuid.FromBytes(d.Data); err == nil {
			return id.String()
		}
	case DescriptorIANA:
		if len(d.Data) == 4 {
			return strconv.FormatUint(uint64(binary.LittleEndian.Uint32(d.Data)), 10)
		}
	case DescriptorPCIVendor, DescriptorPCIDevice, DescriptorPCISubsystemVendor, DescriptorPCISubsystem, DescriptorPCIRevision:
		number := slices.Clone(d.Data)
		slices.Reverse(number)
		return "0x" + hex.EncodeToString(number)
	case DescriptorModelLong, DescriptorModelShort, DescriptorPnPVendor, DescriptorACPIVendor, DescriptorSCSIVendor, DescriptorSCSIProduct:
		if text := strings.TrimRight(string(d.Data), " \x00"); printable(text) {
			return text
		}
	}
	return "0x" + hex.EncodeToString(d.Data)
}

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c < 0x20 || c > 0x7e {
			return false
		}
	}
	return s != ""
}

// vendor is the content of the vendor-defined descriptor of a title.
func vendor(descriptors []Descriptor, title string) ([]byte, bool) {
	for _, d := range descriptors {
		if d.Type == DescriptorVendorDefined && strings.EqualFold(d.Title, title) {
			return d.Data, true
		}
	}
	return nil, false
}

// descriptors reads n descriptors. The first one identifies the vendor and so
// cannot be vendor-defined.
func (c *cursor) descriptors(n int) []Descriptor {
	var out []Descriptor
	for i := 0; i < n && c.err == nil; i++ {
		out = append(out, c.descriptor(i))
	}
	return out
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
