// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
)

// blockSize is the unit of a tar archive, in bytes.
const blockSize = 512

// Fields of a tar header (POSIX.1-1988, "ustar Interchange Format").
const (
	tarName     = 0
	tarSize     = 124
	tarChecksum = 148
	tarType     = 156
	tarMagic    = 257
	tarPrefix   = 345
	tarNameLen  = 100
	tarPrefLen  = 155
)

// Entry types that an archive of firmware may have: a file in either spelling,
// and a folder.
const (
	typeFile    = '0'
	typeOldFile = 0
	typeFolder  = '5'
)

// Entry is a file in an archive.
type Entry struct {
	Name string
	// Section is where its content lies in the archive.
	Section
}

// header is one decoded header block.
type header struct {
	name   string
	size   int64
	folder bool
}

// isTarHeader reports whether a block has the checksum of a tar header. That is
// all by which a V7 archive can be known.
func isTarHeader(block []byte) bool {
	if len(block) < blockSize || block[tarName] == 0 {
		return false
	}
	stored, err := octal(block[tarChecksum : tarChecksum+8])
	if err != nil {
		return false
	}
	// The sum is taken with the checksum's own field as blanks; some old writers
	// summed signed bytes.
	var unsigned, signed int64
	for i, b := range block[:blockSize] {
		if i >= tarChecksum && i < tarChecksum+8 {
			b = ' '
		}
		unsigned += int64(b)
		signed += int64(int8(b))
	}
	return stored == unsigned || stored == signed
}

// octal reads a number of a tar header: octal digits, closed by a blank or zero.
func octal(field []byte) (int64, error) {
	text := strings.Trim(string(field), " \x00")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 8, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is no octal number", text)
	}
	return int64(n), nil
}

func word(field []byte) string {
	if end := bytes.IndexByte(field, 0); end >= 0 {
		field = field[:end]
	}
	return string(field)
}

// parseHeader decodes a header block at an offset. Links, devices and extensions
// (of GNU and pax) are refused, and so are names that leave the archive.
func parseHeader(block []byte, at int64) (header, error) {
	if !isTarHeader(block) {
		return header{}, &FormatError{Offset: at + tarChecksum, Field: "archive header", Err: ErrChecksum}
	}
	h := header{name: word(block[tarName : tarName+tarNameLen])}
	// In GNU's own format, "ustar" and two blanks, the prefix holds other things.
	if bytes.Equal(block[tarMagic:tarMagic+6], []byte("ustar\x00")) {
		if prefix := word(block[tarPrefix : tarPrefix+tarPrefLen]); prefix != "" {
			h.name = prefix + "/" + h.name
		}
	}
	switch kind := block[tarType]; kind {
	case typeFile, typeOldFile:
		// V7 knows folders by the end of their name.
		h.folder = strings.HasSuffix(h.name, "/")
	case typeFolder:
		h.folder = true
	default:
		return header{}, &FormatError{Offset: at + tarType, Field: "archive entry type",
			Err: fmt.Errorf("%q: only files and folders are accepted", kind)}
	}
	if err := checkName(h.name); err != nil {
		return header{}, &FormatError{Offset: at + tarName, Field: "archive entry name", Err: err}
	}
	size, err := octal(block[tarSize : tarSize+12])
	if err != nil {
		return header{}, &FormatError{Offset: at + tarSize, Field: "archive entry size", Err: err}
	}
	if h.folder && size != 0 {
		return header{}, &FormatError{Offset: at + tarSize, Field: "archive entry size", Err: errors.New("a folder has no content")}
	}
	h.size = size
	return h, nil
}

func checkName(name string) error {
	if path.IsAbs(name) || strings.Contains(name, `\`) {
		return fmt.Errorf("%q is not relative to the archive", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return fmt.Errorf("%q leads out of the archive", name)
		}
	}
	return nil
}

// entries reads the headers of the archive in the first size bytes of r up to
// its end mark, a block of zeros.
func entries(r io.ReaderAt, size int64) ([]Entry, error) {
	var out []Entry
	block := make([]byte, blockSize)
	file := io.NewSectionReader(r, 0, size)
	for at := int64(0); ; {
		n, err := file.ReadAt(block, at)
		if n < blockSize {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, fmt.Errorf("read archive at %d: %w", at, err)
			}
			return nil, &FormatError{Offset: min(at, size), Field: "archive header", Err: io.ErrUnexpectedEOF}
		}
		if bytes.Count(block, []byte{0}) == blockSize {
			return out, nil
		}
		h, err := parseHeader(block, at)
		if err != nil {
			return nil, err
		}
		if len(out) == maxEntries {
			return nil, &FormatError{Offset: at, Field: "archive header", Err: fmt.Errorf("more than %d files", maxEntries)}
		}
		content := Section{Offset: at + blockSize, Size: h.size}
		if h.size > size-content.Offset {
			return nil, &FormatError{Offset: at + tarSize, Field: "archive entry size",
				Err: fmt.Errorf("%q ends at %d, the file at %d: %w", h.name, content.End(), size, io.ErrUnexpectedEOF)}
		}
		if !h.folder {
			out = append(out, Entry{Name: h.name, Section: content})
		}
		at = content.Offset + (h.size+blockSize-1)/blockSize*blockSize
	}
}
