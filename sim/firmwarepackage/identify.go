// SPDX-License-Identifier: Apache-2.0

package firmwarepackage

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// PrefixSize is how many leading bytes of a file Identify needs at most: a PLDM header is never longer.
const PrefixSize = 64 << 10

// rawMarker begins the first line of a raw image.
const rawMarker = "racksim-image: "

// Form is the kind of a firmware file.
type Form int

const (
	// FormRaw is a file known only by its name, or by nothing.
	FormRaw Form = iota
	// FormPLDM is a DSP0267 package.
	FormPLDM
	// FormArchive is a power shelf tar with a MANIFEST.
	FormArchive
)

// Image is a component name with the version a file brings for it.
type Image struct {
	Name    string
	Version string
	// SKU is the value of the SKU descriptor of the image's record, in hex, "" without one.
	SKU string
	// Stamp is the component comparison stamp.
	Stamp uint32
}

// ForSKU reports whether the image is for components of a SKU such as "0x4A350020" or "MZTL63T8HFLT": its own SKU is
// none, or is that one as text or as a number in either byte order.
func (i Image) ForSKU(sku string) bool {
	if i.SKU == "" || strings.EqualFold(i.SKU, strings.TrimPrefix(sku, "0x")) {
		return true
	}
	raw, err := hex.DecodeString(i.SKU)
	if err != nil {
		return false
	}
	if string(raw) == sku {
		return true
	}
	slices.Reverse(raw)
	return strings.EqualFold(hex.EncodeToString(raw), strings.TrimPrefix(sku, "0x"))
}

// File is what could be learned about a firmware file.
type File struct {
	Form Form
	// Name is the file name, from the content's own first line when it has one.
	Name string
	// Version is the package version (PLDM), the MANIFEST version, or the VERSION of name_VERSION.ext;
	// empty when unknown.
	Version string
	// Purpose is the MANIFEST purpose of a shelf archive.
	Purpose string
	// DeviceUUID is the first descriptor of a PLDM package, when that is a UUID, in hex.
	DeviceUUID string
	// Images are the named components of a PLDM package; empty for other forms.
	Images []Image
}

// Identify looks at the first bytes of a file (up to PrefixSize) and its name, which may be empty.
func Identify(prefix []byte, name string) File {
	if p, err := ParseHeader(prefix); err == nil {
		return File{Form: FormPLDM, Name: name, Version: p.Version, DeviceUUID: p.DeviceUUID, Images: p.Images}
	}
	if f, ok := identifyArchive(prefix, name); ok {
		return f
	}
	if rest, ok := bytes.CutPrefix(prefix, []byte(rawMarker)); ok {
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		name = strings.TrimSpace(string(line))
	}
	return File{Form: FormRaw, Name: name, Version: VersionFromName(name)}
}

func identifyArchive(prefix []byte, name string) (File, bool) {
	files := tar.NewReader(bytes.NewReader(prefix))
	for {
		head, err := files.Next()
		if err != nil {
			return File{}, false
		}
		if filepath.Base(head.Name) != "MANIFEST" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return File{}, false
		}
		f := File{Form: FormArchive, Name: name}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch key {
			case "purpose":
				f.Purpose = value
			case "version":
				f.Version = value
			}
		}
		return f, true
	}
}

// hexToken is the version of a LiteOn supply image: four hex digits between underscores.
var hexToken = regexp.MustCompile(`_([0-9A-Fa-f]{4})(?:_|\.|$)`)

// SupplyVersion returns the four-hex-digit version token of a supply image name, for example "F1F1", or "".
func SupplyVersion(name string) string {
	if m := hexToken.FindStringSubmatch(name); m != nil {
		return strings.ToUpper(m[1])
	}
	return ""
}

// VersionFromName returns the VERSION of name_VERSION.ext, or "" when the name has no underscore.
func VersionFromName(name string) string {
	stem := strings.TrimSuffix(name, filepath.Ext(name))
	at := strings.LastIndexByte(stem, '_')
	if at < 0 {
		return ""
	}
	return stem[at+1:]
}

// Raw returns a raw image of the given size in bytes, at least long enough for its first line, which names it.
func Raw(name string, size int) []byte {
	head := rawMarker + name + "\n"
	out := make([]byte, max(size, len(head)))
	n := copy(out, head)
	for i := n; i < len(out); i++ {
		out[i] = byte(i*31 + i>>8)
	}
	return out
}
