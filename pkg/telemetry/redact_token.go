// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// schemes are those of HTTP authentication (RFC 7617 and 6750) that secrets follow
// without a name.
var schemes = [...]string{"bearer ", "basic "}

// leastBearer tells a token from a word of a sentence, in bytes.
const leastBearer = 16

// redactSchemes masks what follows "Bearer " and "Basic " where it can be nothing but
// a credential.
func redactSchemes(text string) string {
	var b strings.Builder
	done := 0
	for i := 0; i+len(schemes[1]) < len(text); i++ {
		if text[i]|0x20 != 'b' || i > 0 && nameChar(text[i-1]) {
			continue
		}
		for _, scheme := range schemes {
			start := i + len(scheme)
			if start >= len(text) || !strings.EqualFold(text[i:start], scheme) {
				continue
			}
			if end := start + tokenLen(text[start:]); credential(scheme, text[start:end]) {
				b.WriteString(text[done:start] + Mask)
				done, i = end, end-1
			}
		}
	}
	if done == 0 {
		return text
	}
	return b.String() + text[done:]
}

// tokenLen is the length of the token68 (RFC 9110 11.2) that a text begins with.
func tokenLen(text string) int {
	for i := range len(text) {
		if c := text[i]; !nameChar(c) && strings.IndexByte("~+/=", c) < 0 {
			return i
		}
	}
	return len(text)
}

func credential(scheme, token string) bool {
	if scheme == schemes[0] {
		return len(token) >= leastBearer
	}
	plain, err := base64.StdEncoding.DecodeString(token)
	return err == nil && bytes.IndexByte(plain, ':') >= 0
}

// signature returns the bounds of the value of a query member, which begins at start,
// when it is what makes a signed URL valid.
func signature(before, text string, start int) (int, int) {
	name := nameBefore(before)
	if at := len(before) - len(name) - 1; at < 0 || before[at] != '?' && before[at] != '&' {
		return start, start
	}
	name = strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToLower(name))
	if name != "sig" && name != "signature" && !strings.HasSuffix(name, "_sig") && !strings.HasSuffix(name, "_signature") {
		return start, start
	}
	if n := strings.IndexAny(text[start:], "&# \t\r\n\"'<>"); n >= 0 {
		return start, start + n
	}
	return start, len(text)
}
