// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"slices"
	"strings"
)

// Mask stands in logs where a secret was.
const Mask = "XXXX"

// IsSecretKey reports whether values under this name are secret. Quotes and
// space around it, letter case, and the difference between '-', '.' and '_' do
// not matter.
func IsSecretKey(key string) bool {
	k := strings.ToLower(strings.Trim(key, "\"'` \t\r\n"))
	k = strings.NewReplacer("-", "_", ".", "_").Replace(k)
	switch k {
	case "password", "passwd", "pwd", "pass", "token", "secret", "credential", "credentials",
		"api_key", "apikey", "authorization", "cookie", "set_cookie", "session", "private_key":
		return true
	}
	for _, part := range [...]string{"password", "api_key", "apikey"} {
		if strings.Contains(k, part) {
			return true
		}
	}
	for _, suffix := range [...]string{
		"token", "secret", "credential", "credentials", "_passwd", "_pwd", "_pass",
		"_authorization", "_cookie", "_session", "_private_key",
	} {
		if strings.HasSuffix(k, suffix) {
			return true
		}
	}
	return false
}

// RedactText masks the values of "name=value" and "name: value" pairs in text
// when the name is secret, the user information and signatures of URLs, and what
// follows the schemes Basic and Bearer. Quoted values may
// contain escapes. A bare value after '=' ends at a quote, a bracket, a comma,
// the line end or before the next " name="; one after ':' ends at a closing
// bracket, a comma or the line end. Rather too much is masked than too little.
func RedactText(text string) string { return redactSchemes(redactPairs(text)) }

func redactPairs(text string) string {
	if !strings.ContainsAny(text, "=:") {
		return text
	}
	var b strings.Builder
	done := 0 // everything before is written
	for i := 0; i < len(text); {
		var start, end int
		switch {
		case strings.HasPrefix(text[i:], "://"):
			start, end = userInfo(text, i+len("://"))
		case text[i] == '=' || text[i] == ':':
			if IsSecretKey(nameBefore(text[done:i])) {
				start, end = valueAfter(text, i+1, text[i])
			} else if text[i] == '=' {
				start, end = signature(text[done:i], text, i+1)
			}
		}
		if end <= start {
			i++
			continue
		}
		b.WriteString(text[done:start])
		b.WriteString(Mask)
		done, i = end, end
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// userInfo returns the bounds of "user:password" in a URL whose authority
// begins at start, or an empty range.
func userInfo(text string, start int) (int, int) {
	authority := text[start:]
	if end := strings.IndexAny(authority, "/?# \t\r\n\"'<>"); end >= 0 {
		authority = authority[:end]
	}
	at := strings.LastIndexByte(authority, '@')
	if at < 0 {
		return start, start
	}
	return start, start + at
}

func nameChar(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// nameBefore returns the word that ends text, without quotes and escapes.
func nameBefore(text string) string {
	text = strings.TrimRight(text, "\"'`\\ \t")
	start := len(text)
	for start > 0 && nameChar(text[start-1]) {
		start--
	}
	return text[start:]
}

// valueAfter returns the bounds of the value that follows a separator; quotes
// stay outside, so that what surrounds the mask keeps its syntax.
func valueAfter(text string, start int, separator byte) (int, int) {
	for start < len(text) && (text[start] == ' ' || text[start] == '\t') {
		start++
	}
	rest := text[start:]
	for _, quote := range [...]string{`\"`, `\'`, `"`, `'`} { // escaped ones: text inside a JSON string
		if strings.HasPrefix(rest, quote) {
			start += len(quote)
			return start, start + quotedLen(text[start:], quote)
		}
	}
	if separator == '=' {
		return start, start + bareLen(rest)
	}
	if end := strings.IndexAny(rest, ",}])\r\n"); end >= 0 {
		return start, start + end
	}
	return start, len(text)
}

// quotedLen returns the length up to the closing quote, or of everything when
// it is missing.
func quotedLen(text, quote string) int {
	for i := 0; i < len(text); i++ {
		switch {
		case strings.HasPrefix(text[i:], quote):
			return i
		case text[i] == '\\':
			i++
		}
	}
	return len(text)
}

// bareLen returns the length of an unquoted value after '='. Spaces belong to
// it unless a further pair follows.
func bareLen(text string) int {
	for i := 0; i < len(text); i++ {
		if slices.Contains([]byte("\"',}]\r\n"), text[i]) {
			return i
		}
		if text[i] != ' ' {
			continue
		}
		next := i + 1
		for next < len(text) && nameChar(text[next]) {
			next++
		}
		if next > i+1 && next < len(text) && text[next] == '=' {
			return i
		}
	}
	return len(text)
}
