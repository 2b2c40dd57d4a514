// SPDX-License-Identifier: Apache-2.0

package firmware_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
)

var uuids = []string{
	"f018878ccb7d49439800a02f059aca02", "1244d2648d7d4718a030fc8a56587d5a",
	"3119ce2fe80a4a99af6d46f8b121f6bf", "7b291c996db64208801b02026e463c78",
}

// le writes values little-endian; strings as they are.
func le(values ...any) []byte {
	var out []byte
	for _, v := range values {
		switch v := v.(type) {
		case string:
			out = append(out, v...)
		case []byte:
			out = append(out, v...)
		case uint8:
			out = append(out, v)
		case uint16:
			out = binary.LittleEndian.AppendUint16(out, v)
		case uint32:
			out = binary.LittleEndian.AppendUint32(out, v)
		default:
			panic("unknown type")
		}
	}
	return out
}

// prefixed puts the length in front that records begin with.
func prefixed(body []byte) []byte { return le(uint16(len(body)+2), body) }

func descriptor(kind uint16, data ...any) []byte {
	body := le(data...)
	return le(kind, uint16(len(body)), body)
}

func titled(title string, data ...byte) []byte {
	return descriptor(0xFFFF, uint8(1), uint8(len(title)), title, data)
}

// record is a device record, or with min a downstream one.
type record struct {
	mask        uint8
	set         string
	flags       uint32
	descriptors [][]byte
	data        string
	manifest    string
	stamp       []byte
}

func (r record) encode(revision int) []byte {
	var lengths []byte
	manifest := ""
	if revision >= 4 {
		lengths, manifest = le(uint32(len(r.manifest))), r.manifest
	}
	return prefixed(le(uint8(len(r.descriptors)), r.flags, uint8(1), uint8(len(r.set)), uint16(len(r.data)), lengths,
		r.mask, r.set, r.stamp, bytes.Join(r.descriptors, nil), r.data, manifest))
}

type image struct {
	version string
	body    []byte
}

// spec is a package to be written, valid in all its parts.
type spec struct {
	revision   int
	version    string
	records    []record
	downstream []record
	images     []image
	// signature stands behind the images and outside of the payload checksum.
	signature string
}

func (s spec) build() []byte {
	id, _ := hex.DecodeString(uuids[s.revision-1])
	stamp := le(uint16(60), []byte{0, 0, 0}, uint8(5), uint8(4), uint8(3), uint8(2), uint8(1), uint16(2026), uint8(0))
	head := le(id, uint8(s.revision), uint16(0), stamp, uint16(8), uint8(1), uint8(len(s.version)), s.version, uint8(len(s.records)))
	for _, r := range s.records {
		head = append(head, r.encode(s.revision)...)
	}
	if s.revision >= 2 {
		head = append(head, uint8(len(s.downstream)))
		for _, r := range s.downstream {
			head = append(head, r.encode(s.revision)...)
		}
	}
	head = append(head, le(uint16(len(s.images)))...)
	var offsets []int
	var payload []byte
	for i, image := range s.images {
		head = append(head, le(uint16(0x000A), uint16(i+1), uint32(7), uint16(1), uint16(8))...)
		offsets = append(offsets, len(head))
		head = append(head, le(uint32(len(payload)), uint32(len(image.body)), uint8(1), uint8(len(image.version)), image.version)...)
		if s.revision >= 3 {
			head = append(head, le(uint32(6), "opaque")...)
		}
		payload = append(payload, image.body...)
	}
	size := len(head) + 4
	if s.revision >= 4 {
		size += 4
	}
	for _, at := range offsets {
		binary.LittleEndian.PutUint32(head[at:], binary.LittleEndian.Uint32(head[at:])+uint32(size))
	}
	binary.LittleEndian.PutUint16(head[17:], uint16(size))
	head = append(head, le(crc32.ChecksumIEEE(head))...)
	if s.revision >= 4 {
		head = append(head, le(crc32.ChecksumIEEE(payload))...)
	}
	return append(append(head, payload...), s.signature...)
}

// tray is a package of a revision with everything that it can have.
func tray(revision int) spec {
	s := spec{
		revision: revision, version: "GB200-P4972",
		records: []record{
			{mask: 0b11, set: "BMC,EROT", flags: 1, data: "data", manifest: "manifest", descriptors: [][]byte{
				descriptor(0x0002, bytes.Repeat([]byte{0xab}, 16)), titled("ECSKU", 0x49, 0x35), titled("APSKU", 0xde, 0xad),
			}},
			{mask: 0b10, set: "BMC", flags: 1, descriptors: [][]byte{
				descriptor(0x0001, uint32(5703)), titled("AXSKU", 0x01),
			}},
		},
		images: []image{{"25.06-2", []byte("FWFW")}, {"01.03", []byte("ROOT")}},
	}
	if revision >= 2 {
		s.downstream = []record{
			{mask: 0b01, set: "1.0", flags: 1, stamp: le(uint32(9)), data: "dd", manifest: "m", descriptors: [][]byte{
				descriptor(0x0000, uint16(0x10de)), descriptor(0x0100, uint16(0x2941)),
			}},
			{mask: 0b10, set: "2.0", descriptors: [][]byte{descriptor(0x0106, "MODEL-X")}},
		}
	}
	return s
}

// one is a package with one named image.
func one(revision int, version, name, imageVersion string, body []byte) spec {
	return spec{
		revision: revision, version: version, images: []image{{imageVersion, body}},
		records: []record{{mask: 1, set: name, descriptors: [][]byte{descriptor(0x0001, uint32(5703)), titled("APSKU", 0x12)}}},
	}
}

// bundle is a package of packages.
func bundle(packages ...[]byte) spec {
	s := spec{revision: 1, version: "BUNDLE-1"}
	set := "HGX,DGX"
	var mask uint8
	for i, p := range packages {
		mask |= 1 << i
		s.images = append(s.images, image{"1", p})
	}
	s.records = []record{{mask: mask, set: set, descriptors: [][]byte{descriptor(0x0001, uint32(5703))}}}
	return s
}
