// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"archive/tar"
	"bufio"
	"io"
	"path"
	"strings"
)

// Bounds of what is looked at in an archive.
const (
	manifestEntries = 64
	manifestBytes   = 64 << 10
)

// readManifest reads what a shelf archive says of itself: a tar with a file
// MANIFEST of the lines purpose=, version= and model=. It gives nil for a file
// that is none.
func readManifest(r io.ReadSeeker) *packageContent {
	archive := tar.NewReader(r)
	for range manifestEntries {
		head, err := archive.Next()
		if err != nil {
			return nil
		}
		if path.Base(head.Name) == "MANIFEST" && head.Typeflag == tar.TypeReg {
			return parseManifest(io.LimitReader(archive, manifestBytes))
		}
	}
	return nil
}

func parseManifest(r io.Reader) *packageContent {
	values := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "="); ok {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	version := values["version"]
	if lines.Err() != nil || version == "" {
		return nil
	}
	name := ""
	switch purpose := strings.ToUpper(values["purpose"]); {
	case strings.Contains(purpose, "PSU"):
		name = "PSU"
	case strings.Contains(purpose, "MCU"), strings.Contains(purpose, "PLDM"):
		name = "MCU"
	case strings.Contains(purpose, "BMC"):
		name = "PMC"
	}
	return &packageContent{version: version, images: []packageImage{{name: name, version: version}}}
}
