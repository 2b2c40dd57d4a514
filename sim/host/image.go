// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"fmt"
	"strings"
)

// imageMagic begins every simulated image.
const imageMagic = "RACKSIM-FLINT"

// BuildImage returns an image that the simulated flint reads, filled up to a size.
func BuildImage(psid, version string, size int) []byte {
	head := []byte(fmt.Sprintf("%s\n%s\n%s\n", imageMagic, psid, version))
	if size <= len(head) {
		return head
	}
	return append(head, bytes.Repeat([]byte{0xff}, size-len(head))...)
}

// readImage returns what an image is for.
func readImage(data []byte) (psid, version string, ok bool) {
	parts := strings.SplitN(string(data[:min(len(data), 512)]), "\n", 4)
	if len(parts) < 4 || parts[0] != imageMagic {
		return "", "", false
	}
	return parts[1], parts[2], true
}
