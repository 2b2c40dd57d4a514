// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/rackbus/rackbus/pkg/firmware"
)

// What became of a checksum.
const (
	checkValid    = "valid"
	checkMismatch = "mismatch"
	// checkNone: this revision has none.
	checkNone = "none"
	// checkSkipped: it was not looked at.
	checkSkipped = "not verified"
)

func checkWord(valid bool) string {
	if valid {
		return checkValid
	}
	return checkMismatch
}

// The views are what scripts read: fields are added, never renamed.
type (
	fileView struct {
		File     string          `json:"file"`
		Size     int64           `json:"size"`
		SHA256   string          `json:"sha256,omitempty"`
		Format   firmware.Format `json:"format"`
		Packages []packageView   `json:"packages,omitempty"`
		Archive  *archiveView    `json:"archive,omitempty"`
	}
	// packageView is a package; the first is the file, others lie in it. Offsets
	// count from the start of the file.
	packageView struct {
		// Path are the component indexes that lead to it.
		Path            []int            `json:"path,omitempty"`
		Offset          int64            `json:"offset"`
		Size            int64            `json:"size"`
		Revision        int              `json:"revision"`
		Version         string           `json:"version"`
		Released        string           `json:"released,omitempty"`
		HeaderSize      int64            `json:"header_size"`
		HeaderChecksum  string           `json:"header_checksum"`
		PayloadChecksum string           `json:"payload_checksum"`
		Records         []recordView     `json:"records"`
		Downstream      []downstreamView `json:"downstream_records,omitempty"`
		Components      []componentView  `json:"components"`
	}
	recordView struct {
		Components      []int            `json:"components"`
		Names           []string         `json:"names"`
		SetVersion      string           `json:"set_version"`
		SKU             string           `json:"sku,omitempty"`
		OptionFlags     string           `json:"option_flags"`
		Descriptors     []descriptorView `json:"descriptors"`
		PackageDataSize int64            `json:"package_data_size,omitempty"`
		ManifestSize    int64            `json:"reference_manifest_size,omitempty"`
	}
	downstreamView struct {
		Components      []int            `json:"components"`
		MinVersion      string           `json:"minimum_version,omitempty"`
		MinStamp        string           `json:"minimum_version_stamp,omitempty"`
		OptionFlags     string           `json:"option_flags"`
		Descriptors     []descriptorView `json:"descriptors"`
		PackageDataSize int64            `json:"package_data_size,omitempty"`
		ManifestSize    int64            `json:"reference_manifest_size,omitempty"`
	}
	descriptorView struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	componentView struct {
		Index           int      `json:"index"`
		Names           []string `json:"names,omitempty"`
		Version         string   `json:"version"`
		Classification  uint16   `json:"classification"`
		Identifier      uint16   `json:"identifier"`
		ComparisonStamp string   `json:"comparison_stamp"`
		Offset          int64    `json:"offset"`
		Size            int64    `json:"size"`
		SHA256          string   `json:"sha256,omitempty"`
		OpaqueSize      int64    `json:"opaque_size,omitempty"`
		// Package says that the image is a package, which follows by itself.
		Package bool `json:"package,omitempty"`
	}
	archiveView struct {
		Purpose firmware.Purpose `json:"purpose"`
		Version string           `json:"version"`
		Model   string           `json:"model"`
		// Manifest is false when the archive has none and the rest is assumed.
		Manifest bool        `json:"manifest"`
		Files    []entryView `json:"files"`
	}
	entryView struct {
		Name   string `json:"name"`
		Offset int64  `json:"offset"`
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256,omitempty"`
	}
)

// table writes the view for people.
func (v *fileView) table(w io.Writer) {
	fmt.Fprintf(w, "File:      %s\nSize:      %d bytes\n", cell(v.File), v.Size)
	if v.SHA256 != "" {
		fmt.Fprintf(w, "SHA-256:   %s\n", v.SHA256)
	}
	fmt.Fprintf(w, "Format:    %s\n", v.Format)
	for _, p := range v.Packages {
		p.table(w)
	}
	if v.Archive != nil {
		v.Archive.table(w)
	}
}

func (p *packageView) table(w io.Writer) {
	if len(p.Path) == 0 {
		fmt.Fprintf(w, "\nPackage %s\n", cell(p.Version))
	} else {
		fmt.Fprintf(w, "\nNested package %s (component %s)\n", cell(p.Version), pathText(p.Path))
	}
	fmt.Fprintf(w, "  Revision %d, released %s, header %d bytes (checksum %s), payload checksum %s\n",
		p.Revision, cell(p.Released), p.HeaderSize, p.HeaderChecksum, p.PayloadChecksum)
	fmt.Fprintf(w, "\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  RECORD\tCOMPONENTS\tSKU\tDESCRIPTORS\n")
	for i, r := range p.Records {
		fmt.Fprintf(t, "  %d\t%s\t%s\t%s\n", i, named(r.Components, r.Names), cell(r.SKU), descriptorText(r.Descriptors))
	}
	for i, r := range p.Downstream {
		fmt.Fprintf(t, "  downstream %d\t%s\t-\t%s\n", i, named(r.Components, nil), descriptorText(r.Descriptors))
	}
	_ = t.Flush() // a failed write shows on the lines behind it
	fmt.Fprintf(w, "\n")
	fmt.Fprintf(t, "  COMPONENT\tNAME\tVERSION\tID\tSTAMP\tOFFSET\tSIZE\tSHA-256\n")
	for _, c := range p.Components {
		name := strings.Join(c.Names, ",")
		if c.Package {
			name += " (package)"
		}
		fmt.Fprintf(t, "  %d\t%s\t%s\t0x%04x\t%s\t%d\t%d\t%s\n", c.Index, cell(name), cell(c.Version), c.Identifier,
			c.ComparisonStamp, c.Offset, c.Size, cell(short(c.SHA256)))
	}
	_ = t.Flush()
}

func (a *archiveView) table(w io.Writer) {
	source := "from its MANIFEST"
	if !a.Manifest {
		source = "assumed, it has no MANIFEST"
	}
	fmt.Fprintf(w, "\nArchive for %s, version %s, model %s (%s)\n\n", a.Purpose, cell(a.Version), cell(a.Model), source)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  FILE\tOFFSET\tSIZE\tSHA-256\n")
	for _, f := range a.Files {
		fmt.Fprintf(t, "  %s\t%d\t%d\t%s\n", cell(f.Name), f.Offset, f.Size, cell(short(f.SHA256)))
	}
	_ = t.Flush()
}

// named lists components with the names that a record gives them.
func named(components []int, names []string) string {
	out := make([]string, len(components))
	for i, c := range components {
		out[i] = strconv.Itoa(c)
		if i < len(names) && names[i] != "" {
			out[i] += ":" + names[i]
		}
	}
	return cell(strings.Join(out, " "))
}

func descriptorText(descriptors []descriptorView) string {
	out := make([]string, len(descriptors))
	for i, d := range descriptors {
		out[i] = d.Name + "=" + d.Value
	}
	return cell(strings.Join(out, " "))
}

func pathText(path []int) string {
	out := make([]string, len(path))
	for i, n := range path {
		out[i] = strconv.Itoa(n)
	}
	return strings.Join(out, "/")
}

// cell is a text for a table: never empty, and without what a terminal would obey.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(c rune) rune {
		switch {
		case unicode.IsPrint(c):
			return c
		case unicode.IsSpace(c):
			return ' '
		}
		return unicode.ReplacementChar
	}, s)
}

// lines is a text of several lines without what a terminal would obey.
func lines(s string) string {
	out := strings.Split(s, "\n")
	for i, line := range out {
		if line != "" {
			out[i] = cell(line)
		}
	}
	return strings.Join(out, "\n")
}

// short is enough of a digest to compare by eye.
func short(digest string) string { return digest[:min(16, len(digest))] }
