// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// chunk is how much of an image is in memory at a time, in bytes.
const chunk = 256 << 10

// CheckSize refuses a file that is too short for the images it should carry, and
// images that lie in the header.
func (p *Package) CheckSize(size int64) error {
	for i, c := range p.Components {
		field, s := fmt.Sprintf("component image %d", i), c.Section()
		switch {
		case s.Size > 0 && s.Offset < p.HeaderEnd:
			return &FormatError{Offset: s.Offset, Field: field, Err: fmt.Errorf("begins in the header, which ends at %d", p.HeaderEnd)}
		case s.End() > size:
			return &FormatError{Offset: s.Offset, Field: field, Err: fmt.Errorf("ends at %d, the file at %d: %w", s.End(), size, io.ErrUnexpectedEOF)}
		}
	}
	return nil
}

// Verify reads the package in the first size bytes of r, checks that its images
// are all there, and its checksums: that of the header, and in revision 4 that of
// the payload, for which all images are read. Packages of older revisions leave
// their images unprotected. Errors are those of ReadPackage, a *FormatError that
// wraps ErrChecksum, or the cause of ctx.
func Verify(ctx context.Context, r io.ReaderAt, size int64) (*Package, error) {
	p, err := readHeader(r, Section{Size: size})
	if err != nil {
		return nil, err
	}
	if p.HeaderSize != 0 && int64(p.HeaderSize) != p.HeaderEnd {
		return nil, &FormatError{Offset: headerSizeAt, Field: "header size", Err: fmt.Errorf("says %d, the header has %d", p.HeaderSize, p.HeaderEnd)}
	}
	if err := p.CheckSize(size); err != nil {
		return nil, err
	}
	if sum := p.HeaderChecksum; !sum.Valid() {
		return nil, &FormatError{Offset: p.headerChecksumAt(), Field: "header checksum", Err: mismatch(sum.Stored, sum.Computed)}
	}
	if err := p.verifyPayload(ctx, r, size); err != nil {
		return nil, err
	}
	return p, nil
}

func mismatch(stored, computed uint32) error {
	return fmt.Errorf("%w: stored 0x%08x, computed 0x%08x", ErrChecksum, stored, computed)
}

func (p *Package) headerChecksumAt() int64 {
	if p.Revision >= 4 {
		return p.HeaderEnd - 8
	}
	return p.HeaderEnd - 4
}

// verifyPayload: the payload begins behind the header. It ends with the last
// image or with the file; some tools put a signature behind the images, and
// whether the checksum covers that is not told, so that either will do.
func (p *Package) verifyPayload(ctx context.Context, r io.ReaderAt, size int64) error {
	if p.Revision < 4 {
		return nil
	}
	end := p.HeaderEnd
	for _, c := range p.Components {
		end = max(end, c.Section().End())
	}
	sum := crc32.NewIEEE()
	if err := stream(ctx, sum, r, Section{Offset: p.HeaderEnd, Size: end - p.HeaderEnd}); err != nil {
		return err
	}
	images := sum.Sum32()
	if images == p.PayloadChecksum {
		return nil
	}
	if err := stream(ctx, sum, r, Section{Offset: end, Size: size - end}); err != nil {
		return err
	}
	if sum.Sum32() == p.PayloadChecksum {
		return nil
	}
	return &FormatError{Offset: p.HeaderEnd - 4, Field: "payload checksum", Err: mismatch(p.PayloadChecksum, images)}
}

// readHeader reads the header of the package in a section of a file. Offsets in
// errors count from the start of the file, those in the package from its own.
func readHeader(r io.ReaderAt, s Section) (*Package, error) {
	p, err := ReadPackage(bufio.NewReader(io.NewSectionReader(r, s.Offset, s.Size)))
	return p, shifted(err, s.Offset)
}

// stream copies a section into w, chunk by chunk, until ctx ends.
func stream(ctx context.Context, w io.Writer, r io.ReaderAt, s Section) error {
	buf := make([]byte, min(chunk, s.Size))
	for at := s.Offset; at < s.End(); {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := r.ReadAt(buf[:min(int64(len(buf)), s.End()-at)], at)
		if n == 0 && err != nil {
			return &FormatError{Offset: at, Field: "image", Err: truncated(err)}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("read image at %d: %w", at, err)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return fmt.Errorf("write image: %w", err)
		}
		at += int64(n)
	}
	return nil
}
