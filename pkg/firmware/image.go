// SPDX-License-Identifier: Apache-2.0

package firmware

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// Bounds of packages in packages. NVIDIA puts the packages of a tray's two
// halves (HGX and DGX) into one; nothing known goes deeper.
const (
	maxDepth    = 3
	maxPackages = 16
)

// Part is a package in a file: the file itself, or one of its images.
type Part struct {
	// Path are the indexes of the images that lead to it, empty for the file.
	Path []int
	// Section is where it lies in the file.
	Section
	Package *Package
}

// Packages gives the package in the first size bytes of r and all packages that
// it carries as images, each before those inside it. Only headers are read. The
// first error ends it; see ReadPackage and CheckSize for the kinds, and
// ErrNesting.
func Packages(r io.ReaderAt, size int64) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		w := walk{r: r, yield: yield}
		w.part(Part{Section: Section{Size: size}})
	}
}

type walk struct {
	r     io.ReaderAt
	yield func(Part, error) bool
	count int
}

// part reads one package and goes on to those in it; it reports false to stop.
func (w *walk) part(part Part) bool {
	w.count++
	if len(part.Path) > maxDepth || w.count > maxPackages {
		w.yield(Part{}, &FormatError{Offset: part.Offset, Field: "nested package", Err: ErrNesting})
		return false
	}
	p, err := readHeader(w.r, part.Section)
	if err == nil {
		err = shifted(p.CheckSize(part.Size), part.Offset)
	}
	if err != nil {
		w.yield(Part{}, err)
		return false
	}
	part.Package = p
	if !w.yield(part, nil) {
		return false
	}
	for i, c := range p.Components {
		inner := part.section(c)
		nested, err := isPackage(w.r, inner)
		if err != nil {
			w.yield(Part{}, err)
			return false
		}
		if nested && !w.part(Part{Path: append(slices.Clone(part.Path), i), Section: inner}) {
			return false
		}
	}
	return true
}

// section places an image of the part in the file.
func (p Part) section(c Component) Section {
	s := c.Section()
	s.Offset += p.Offset
	return s
}

// isPackage looks at the first bytes of an image.
func isPackage(r io.ReaderAt, s Section) (bool, error) {
	if s.Size < uuidSize {
		return false, nil
	}
	id := make([]byte, uuidSize)
	if _, err := r.ReadAt(id, s.Offset); err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read image at %d: %w", s.Offset, err)
	}
	return revisionOf(id) != 0, nil
}

// Image is one image as a record of a package, maybe a nested one, gives it to a
// kind of device.
type Image struct {
	// Path leads to the image's package; see Part.
	Path []int
	// Package is the version of that package.
	Package string
	// Component is its index there.
	Component int
	// Name and SKU are what the record calls it and tells it apart by, empty
	// where it does not.
	Name, SKU string
	Version   string
	// Section is where it lies in the file.
	Section
}

// Open gives the image's bytes.
func (i Image) Open(r io.ReaderAt) *io.SectionReader {
	return io.NewSectionReader(r, i.Offset, i.Size)
}

// WriteTo streams the image into w until ctx ends.
func (i Image) WriteTo(ctx context.Context, w io.Writer, r io.ReaderAt) error {
	return stream(ctx, w, r, i.Section)
}

// Digest is the SHA-256 of a section of a file.
func Digest(ctx context.Context, r io.ReaderAt, s Section) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	if err := stream(ctx, h, r, s); err != nil {
		return sum, err
	}
	h.Sum(sum[:0])
	return sum, nil
}

// Images gives every image of the package in the first size bytes of r and of
// those in it, once for each record of a device that gets it, in their order.
// Images that are packages are left out in favour of their own. Images that no
// record names come last in their package, without a name.
func Images(r io.ReaderAt, size int64) ([]Image, error) {
	var parts []Part
	nested := map[Section]bool{}
	for part, err := range Packages(r, size) {
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		nested[part.Section] = true
	}
	var images []Image
	for _, part := range parts {
		for _, i := range part.images() {
			if !nested[i.Section] {
				images = append(images, i)
			}
		}
	}
	return images, nil
}

// images of one package.
func (p Part) images() []Image {
	var out []Image
	named := make([]bool, len(p.Package.Components))
	add := func(component int, name, sku string) {
		c := p.Package.Components[component]
		named[component] = true
		out = append(out, Image{
			Path: p.Path, Package: p.Package.Version, Component: component,
			Name: name, SKU: sku, Version: c.Version, Section: p.section(c),
		})
	}
	for _, r := range p.Package.Records {
		own, root := r.SKU(), ""
		for n, component := range r.Components {
			name, sku := r.Name(n), own
			if isRoot(name) {
				root = cmp.Or(root, r.SKUOf(n))
				sku = root
			}
			add(component, name, sku)
		}
	}
	for component := range p.Package.Components {
		if !named[component] {
			add(component, "", "")
		}
	}
	return out
}
