// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// The functions here take valid JSON apart without copying it. A fleet is read in
// thousands of small documents of which few members matter, and decoding all of
// them is a good part of what an agent computes.

// splitObject gives the members of a JSON object, which must be valid and begin
// with its brace. As in encoding/json the last of equal names wins.
func splitObject(raw []byte) document {
	// Few objects have more members, so the map is made once in the right size.
	var room [24]member
	members := room[:0]
	for i := skipSpace(raw, 1); raw[i] != '}'; {
		end := valueEnd(raw, i)
		name, _ := scalarText(raw[i:end])
		i = skipSpace(raw, skipSpace(raw, end)+1) // behind the colon
		end = valueEnd(raw, i)
		members = append(members, member{name, raw[i:end:end]})
		i = nextElement(raw, end)
	}
	d := make(document, len(members))
	for _, m := range members {
		d[m.name] = m.value
	}
	return d
}

type member struct {
	name  string
	value json.RawMessage
}

// splitArray gives the elements of a JSON array, which must be valid and begin
// with its bracket.
func splitArray(raw []byte) []json.RawMessage {
	var l []json.RawMessage
	for i := skipSpace(raw, 1); raw[i] != ']'; {
		end := valueEnd(raw, i)
		l = append(l, raw[i:end:end])
		i = nextElement(raw, end)
	}
	return l
}

// nextElement steps over what follows a value, up to the next one or the closing
// bracket.
func nextElement(raw []byte, i int) int {
	i = skipSpace(raw, i)
	if raw[i] == ',' {
		i = skipSpace(raw, i+1)
	}
	return i
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\r' || raw[i] == '\t') {
		i++
	}
	return i
}

// valueEnd is the index behind the value that begins at i.
func valueEnd(raw []byte, i int) int {
	switch raw[i] {
	case '"':
		return stringEnd(raw, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch raw[i] {
			case '"':
				i = stringEnd(raw, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	default:
		for ; i < len(raw); i++ {
			switch raw[i] {
			case ',', ']', '}', ' ', '\n', '\r', '\t':
				return i
			}
		}
		return i
	}
}

func stringEnd(raw []byte, i int) int {
	for i++; raw[i] != '"'; i++ {
		if raw[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// plainText gives a JSON string that stands for itself.
func plainText(raw []byte) (string, bool) {
	s := raw[1 : len(raw)-1]
	if bytes.IndexByte(s, '\\') >= 0 || !utf8.Valid(s) {
		return "", false
	}
	return string(s), true
}
