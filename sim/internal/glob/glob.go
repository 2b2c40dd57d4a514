// SPDX-License-Identifier: Apache-2.0

// Package glob matches device names and URI paths against patterns.
package glob

import (
	"regexp"
	"strings"
)

// Pattern is a compiled pattern: * is any run without a slash, ** any run, ? one character that is no slash.
// The zero value matches everything.
type Pattern struct {
	re *regexp.Regexp
}

// Compile never fails: everything but the wildcards is literal. An empty text matches everything.
func Compile(text string) Pattern {
	if text == "" {
		return Pattern{}
	}
	var out strings.Builder
	out.WriteByte('^')
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], "**"):
			out.WriteString(".*")
			i++
		case text[i] == '*':
			out.WriteString("[^/]*")
		case text[i] == '?':
			out.WriteString("[^/]")
		default:
			out.WriteString(regexp.QuoteMeta(text[i : i+1]))
		}
	}
	out.WriteByte('$')
	return Pattern{re: regexp.MustCompile(out.String())}
}

// Match reports whether the whole of s matches.
func (p Pattern) Match(s string) bool { return p.re == nil || p.re.MatchString(s) }
