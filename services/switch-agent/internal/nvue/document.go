// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// document is a JSON object whose members are decoded on demand, so that an odd
// member costs itself and nothing else. A nil document is empty.
type document map[string]json.RawMessage

// asDocument gives nil when raw is anything but an object.
func asDocument(raw json.RawMessage) document {
	var d document
	if json.Unmarshal(raw, &d) != nil {
		return nil
	}
	return d
}

func (d document) object(key string) document { return asDocument(d[key]) }

// text gives a member string; a number is given as written. Anything else is
// absent.
func (d document) text(key string) string {
	s, _ := scalar(d[key])
	return s
}

// first gives the first of several members that has a text.
func (d document) first(keys ...string) string {
	for _, key := range keys {
		if s := d.text(key); s != "" {
			return s
		}
	}
	return ""
}

// layered gives a member itself, else that under operational, else that under
// applied: NVUE answers in either form.
func (d document) layered(key string) string {
	for _, layer := range []document{d, d.object("operational"), d.object("applied")} {
		if s := layer.text(key); s != "" {
			return s
		}
	}
	return ""
}

func scalar(raw json.RawMessage) (string, bool) {
	raw = trim(raw)
	if len(raw) == 0 {
		return "", false
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err == nil
	case c == '-' || c >= '0' && c <= '9':
		return string(raw), true
	default:
		return "", false
	}
}

func trim(raw json.RawMessage) json.RawMessage { return bytes.TrimSpace(raw) }

// maxDepth bounds how deep texts are looked for.
const maxDepth = 32

// leaves visits every string below raw, in the order of keys and positions, with
// the key it stands under.
func leaves(raw json.RawMessage, key string, depth int, visit func(key, text string)) {
	if depth > maxDepth {
		return
	}
	raw = trim(raw)
	if len(raw) == 0 {
		return
	}
	switch raw[0] {
	case '"':
		if s, ok := scalar(raw); ok {
			visit(key, s)
		}
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) == nil {
			for _, e := range list {
				leaves(e, key, depth+1, visit)
			}
		}
	case '{':
		d := asDocument(raw)
		for _, k := range slices.SortedFunc(maps.Keys(d), byNumber) {
			leaves(d[k], k, depth+1, visit)
		}
	}
}

// byNumber sorts "2" before "10".
func byNumber(a, b string) int {
	if len(a) != len(b) {
		x, errX := strconv.Atoi(a)
		y, errY := strconv.Atoi(b)
		if errX == nil && errY == nil {
			return x - y
		}
	}
	return strings.Compare(a, b)
}

// issueText flattens what a switch says about a failure: a string, a list, or an
// object of any depth. Where there are members that hold a message only those
// count; otherwise every string does. A text that is no JSON is given as it is.
func issueText(raw []byte) string {
	if !json.Valid(raw) {
		return strings.ToValidUTF8(string(raw), "?")
	}
	var messages, others []string
	leaves(raw, "", 0, func(key, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		into := &others
		switch strings.ToLower(key) {
		case "message", "msg", "detail":
			into = &messages
		case "severity", "code", "type":
			return
		}
		if !slices.Contains(*into, text) {
			*into = append(*into, text)
		}
	})
	if len(messages) > 0 {
		return strings.Join(messages, "; ")
	}
	return strings.Join(others, "; ")
}

// shorten makes one line of bounded length.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= maxText {
		return text
	}
	cut := maxText
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// mentions reports whether any string below raw contains part, letter case
// ignored.
func mentions(raw json.RawMessage, part string) bool {
	found := false
	leaves(raw, "", 0, func(_, text string) {
		found = found || strings.Contains(strings.ToLower(text), part)
	})
	return found
}
