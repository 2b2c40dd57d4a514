// SPDX-License-Identifier: Apache-2.0

package firmwarepackage

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"time"

	"github.com/rackbus/rackbus/sim/internal/filler"
)

// Build returns the package as bytes; see Write.
func Build(spec Spec) ([]byte, error) {
	var out bytes.Buffer
	if _, err := Write(&out, spec); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// WriteFile writes the package to a new file and returns its size.
func WriteFile(path string, spec Spec) (int64, error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, fmt.Errorf("write firmware package: %w", err)
	}
	n, err := Write(f, spec)
	return n, cmp.Or(err, f.Close())
}

// Write writes the package and returns its size. Images are made while they are written, so a package may be larger
// than memory; all of it has to stay below 4 GiB. Checksums are the CRC-32 (IEEE) of the header bytes before them and,
// in revision 4, of all images.
func Write(w io.Writer, spec Spec) (int64, error) {
	p, err := layOut(spec)
	if err != nil {
		return 0, err
	}
	return p.size(), p.write(w)
}

// layout is a package whose header is made.
type layout struct {
	head   []byte
	images []image
}

// image is the content of a component.
type image struct {
	bytes  []byte
	filler *filler.Content
	nested *layout
}

func (p *layout) size() int64 {
	n := int64(len(p.head))
	for _, i := range p.images {
		n += i.size()
	}
	return n
}

func (p *layout) write(w io.Writer) error {
	if _, err := w.Write(p.head); err != nil {
		return fmt.Errorf("write firmware package: %w", err)
	}
	return p.writeImages(w)
}

func (p *layout) writeImages(w io.Writer) error {
	for _, i := range p.images {
		if err := i.write(w); err != nil {
			return fmt.Errorf("write firmware package: %w", err)
		}
	}
	return nil
}

func (i image) size() int64 {
	switch {
	case i.nested != nil:
		return i.nested.size()
	case i.filler != nil:
		return i.filler.Size()
	}
	return int64(len(i.bytes))
}

func (i image) write(w io.Writer) error {
	switch {
	case i.nested != nil:
		return i.nested.write(w)
	case i.filler != nil:
		_, err := io.Copy(w, i.filler.Fork())
		return err
	}
	_, err := w.Write(i.bytes)
	return err
}

func (c Component) image(seed uint64) (image, error) {
	switch {
	case len(c.Payload) > 0:
		return image{bytes: c.Payload}, nil
	case c.Size > 0:
		return image{filler: filler.New(c.Size, seed)}, nil
	case c.Nested != nil:
		inner, err := layOut(*c.Nested)
		return image{nested: inner}, err
	}
	return image{bytes: []byte(c.Name + " " + c.Version + "\n")}, nil
}

// layOut makes the header of a package.
func layOut(spec Spec) (*layout, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	p := &layout{}
	for i, c := range spec.Components {
		content, err := c.image(uint64(i))
		if err != nil {
			return nil, err
		}
		p.images = append(p.images, content)
	}
	revision := spec.revision()
	var head bytes.Buffer
	id := packageUUID(revision)
	head.Write(id[:])
	head.WriteByte(byte(revision))
	sizeAt := head.Len()
	head.Write([]byte{0, 0})
	head.Write(timestamp(spec.Released))
	put16(&head, uint16(spec.bitmapBytes()*8))
	putString(&head, spec.Version)
	records := spec.deviceRecords()
	head.WriteByte(byte(len(records)))
	for _, r := range records {
		head.Write(spec.record(r))
	}
	if revision >= 2 {
		head.WriteByte(byte(len(spec.Downstream)))
		for _, d := range spec.Downstream {
			head.Write(spec.downstream(d))
		}
	}
	trailer := 4
	if revision >= 4 {
		trailer = 8
	}
	size := head.Len() + spec.tableSize() + trailer
	if size > math.MaxUint16 {
		return nil, fmt.Errorf("%w: header of %d bytes is over 65535", ErrInvalidSpec, size)
	}
	if total := int64(size) + p.size(); total > math.MaxUint32 {
		return nil, fmt.Errorf("%w: package of %d bytes is over 4 GiB", ErrInvalidSpec, total)
	}
	// Image offsets count from the start of the package.
	spec.table(&head, p.images, int64(size))
	out := head.Bytes()
	binary.LittleEndian.PutUint16(out[sizeAt:], uint16(size))
	p.head = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out))
	if revision >= 4 {
		sum := crc32.NewIEEE()
		if err := p.writeImages(sum); err != nil {
			return nil, err
		}
		p.head = binary.LittleEndian.AppendUint32(p.head, sum.Sum32())
	}
	return p, nil
}

func (s Spec) bitmapBytes() int { return (len(s.Components) + 7) / 8 }

func (s Spec) bitmap(components []int) []byte {
	out := make([]byte, s.bitmapBytes())
	for _, i := range components {
		out[i/8] |= 1 << (i % 8)
	}
	return out
}

// descriptors are those of a record; without own ones, those of the package and the SKU of its first component.
func (s Spec) descriptors(r Record) []Descriptor {
	if len(r.Descriptors) > 0 {
		return r.Descriptors
	}
	out := s.Device
	if len(out) == 0 {
		out = []Descriptor{{Type: DescriptorIANA, Data: binary.LittleEndian.AppendUint32(nil, nvidiaEnterprise)}}
	}
	if len(r.Components) > 0 {
		if c := s.Components[r.Components[0]]; len(c.SKU) > 0 {
			out = append(out[:len(out):len(out)], Descriptor{Type: DescriptorVendor, Title: cmp.Or(c.SKUTitle, "APSKU"), Data: c.SKU})
		}
	}
	return out
}

func putDescriptors(out *bytes.Buffer, list []Descriptor) {
	for _, d := range list {
		put16(out, d.Type)
		if d.Type != DescriptorVendor {
			put16(out, uint16(len(d.Data)))
			out.Write(d.Data)
			continue
		}
		put16(out, uint16(2+len(d.Title)+len(d.Data)))
		putString(out, d.Title)
		out.Write(d.Data)
	}
}

// record writes a firmware device identification record.
func (s Spec) record(r Record) []byte {
	descriptors, name := s.descriptors(r), s.setVersion(r)
	var body bytes.Buffer
	body.WriteByte(byte(len(descriptors)))
	put32(&body, r.Flags)
	body.WriteByte(asciiString)
	body.WriteByte(byte(len(name)))
	put16(&body, uint16(len(r.PackageData)))
	if s.revision() >= 4 {
		put32(&body, uint32(len(r.ReferenceManifest)))
	}
	body.Write(s.bitmap(r.Components))
	body.WriteString(name)
	putDescriptors(&body, descriptors)
	body.Write(r.PackageData)
	body.Write(r.ReferenceManifest)
	return withLength(body.Bytes())
}

// downstream writes a downstream device identification record. Bit 0 of the option flags announces the stamp.
func (s Spec) downstream(d Downstream) []byte {
	var body bytes.Buffer
	body.WriteByte(byte(len(d.Descriptors)))
	flags := uint32(0)
	if d.MinStamp != nil {
		flags = 1
	}
	put32(&body, flags)
	body.WriteByte(asciiString)
	body.WriteByte(byte(len(d.MinVersion)))
	put16(&body, uint16(len(d.PackageData)))
	if s.revision() >= 4 {
		put32(&body, uint32(len(d.ReferenceManifest)))
	}
	body.Write(s.bitmap(d.Components))
	body.WriteString(d.MinVersion)
	if d.MinStamp != nil {
		put32(&body, *d.MinStamp)
	}
	putDescriptors(&body, d.Descriptors)
	body.Write(d.PackageData)
	body.Write(d.ReferenceManifest)
	return withLength(body.Bytes())
}

// withLength puts the record length, itself included, before a record.
func withLength(body []byte) []byte {
	return append(binary.LittleEndian.AppendUint16(nil, uint16(2+len(body))), body...)
}

// tableSize is the size of the component image area, in bytes.
func (s Spec) tableSize() int {
	n := 2
	for _, c := range s.Components {
		n += 22 + len(c.Version)
		if s.revision() >= 3 {
			n += 4 + len(c.Opaque)
		}
	}
	return n
}

// table writes the component image area.
func (s Spec) table(out *bytes.Buffer, images []image, offset int64) {
	put16(out, uint16(len(s.Components)))
	for i, c := range s.Components {
		put16(out, firmwareClass)
		put16(out, cmp.Or(c.Identifier, uint16(i+1)))
		put32(out, c.Stamp)
		put16(out, c.Options)
		put16(out, c.Activation)
		put32(out, uint32(offset))
		put32(out, uint32(images[i].size()))
		putString(out, c.Version)
		if s.revision() >= 3 {
			put32(out, uint32(len(c.Opaque)))
			out.Write(c.Opaque)
		}
		offset += images[i].size()
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
