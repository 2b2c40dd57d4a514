// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"net/url"
	"strings"
)

// apiRoot is the only part of the switch this client speaks to.
const apiRoot = "/nvue_v1"

// resource builds a path below the API root from raw segments. An empty or dot
// segment makes a path that checkPath refuses.
func resource(segments ...string) string {
	var b strings.Builder
	b.WriteString(apiRoot)
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(encode(s))
	}
	return b.String()
}

// at adds the revision a request is about.
func at(path string, rev Revision) string { return path + "?rev=" + encode(string(rev)) }

// encode keeps the unreserved characters of RFC 3986 and percent-encodes every
// other byte with upper-case digits.
func encode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// insideAPI reports whether a path stays on the switch and below the API root on
// every reading of it.
func insideAPI(path string) bool {
	path, query, _ := strings.Cut(path, "?")
	rest, ok := strings.CutPrefix(path, apiRoot)
	if !ok || strings.ContainsAny(path+query, "\\#") || strings.ContainsFunc(path+query, notPrintable) {
		return false
	}
	if rest == "" {
		return true
	}
	if rest[0] != '/' {
		return false
	}
	for segment := range strings.SplitSeq(rest[1:], "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "" || strings.ContainsFunc(plain, control) {
			return false
		}
		for part := range strings.SplitSeq(strings.ReplaceAll(plain, `\`, "/"), "/") {
			if part == "." || part == ".." {
				return false
			}
		}
	}
	return true
}

func control(r rune) bool { return r < 0x20 || r == 0x7f }

func notPrintable(r rune) bool { return r <= 0x20 || r >= 0x7f }
