// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
)

// VME is the programming file of a switch's CPLD. Switches take it by itself,
// with the ending .vme, and not in its package.
type VME struct {
	Image
	// FileName is made of the image's name, its version and the begin of its
	// digest, so that another image never gets the same one.
	FileName string
	SHA256   [sha256.Size]byte
}

// ErrSeveralCPLDs says that a package has different images for CPLDs.
var ErrSeveralCPLDs = errors.New("several CPLD images in the package")

// ExtractVME streams the CPLD image of the package in the first size bytes of r
// into w. It wraps ErrNoCPLD or ErrSeveralCPLDs when there is not exactly one;
// other errors are those of Packages, of r and w, and the cause of ctx. On an
// error w may have got a part.
func ExtractVME(ctx context.Context, r io.ReaderAt, size int64, w io.Writer) (VME, error) {
	images, err := Images(r, size)
	if err != nil {
		return VME{}, err
	}
	image, err := cpld(images)
	if err != nil {
		return VME{}, err
	}
	sum := sha256.New()
	if err := image.WriteTo(ctx, io.MultiWriter(w, sum), r); err != nil {
		return VME{}, err
	}
	vme := VME{Image: image}
	sum.Sum(vme.SHA256[:0])
	vme.FileName = fmt.Sprintf("%s_%s_%s_image.vme", fileWord(image.Name), fileWord(image.Version), hex.EncodeToString(vme.SHA256[:4]))
	return vme, nil
}

// cpld finds the one CPLD image; several records may share it.
func cpld(images []Image) (Image, error) {
	var found *Image
	for i, image := range images {
		if !strings.Contains(strings.ToUpper(image.Name), "CPLD") {
			continue
		}
		if found != nil && found.Section != image.Section {
			return Image{}, fmt.Errorf("%w: %s at offset %d and %s at offset %d", ErrSeveralCPLDs, found.Name, found.Offset, image.Name, image.Offset)
		}
		if found == nil {
			found = &images[i]
		}
	}
	if found == nil {
		return Image{}, ErrNoCPLD
	}
	return *found, nil
}

// fileWord makes a part of a file name of a text from a package.
func fileWord(s string) string {
	word := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '-':
			return c
		default:
			return '-'
		}
	}, strings.TrimSpace(s))
	if word = strings.Trim(word, ".-"); word == "" {
		return "unknown"
	}
	return word
}
