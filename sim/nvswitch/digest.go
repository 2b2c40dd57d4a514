// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// digestLine is the form in which the digest of the beginning of a file is asked for: "test -f F && head -c N -- F | sha256sum".
var digestLine = regexp.MustCompile(`^test -f (.+?) && head -c (\d+) -- (.+?) \| sha256sum$`)

// digestOfBeginning answers such a line.
func (s *Switch) digestOfBeginning(line string) (output, bool) {
	m := digestLine.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return output{}, false
	}
	name, other := split(m[1]), split(m[3])
	n, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil || len(name) != 1 || len(other) != 1 || name[0] != other[0] {
		return output{status: 2}, true
	}
	f, err := s.root.Open(inside(name[0]))
	if err != nil {
		return output{status: 1}, true
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, n); err != nil && !errors.Is(err, io.EOF) {
		return fails("head: error reading '" + name[0] + "'"), true
	}
	return output{stdout: hex.EncodeToString(h.Sum(nil)) + "  -\n"}, true
}
