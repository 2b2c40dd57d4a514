// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
)

// document is a JSON object whose members are decoded one by one, on demand, so
// that an odd member costs itself and nothing else. A nil document is empty.
type document map[string]json.RawMessage

var errNotObject = errors.New("not a JSON object")

func parseDocument(raw []byte) (document, error) {
	if !json.Valid(raw) {
		var d document
		return nil, json.Unmarshal(raw, &d)
	}
	if raw = raw[skipSpace(raw, 0):]; raw[0] != '{' {
		return nil, errNotObject
	}
	return splitObject(raw), nil
}

// has reports whether the member exists and is not null.
func (d document) has(key string) bool {
	raw, ok := d[key]
	return ok && string(raw) != "null"
}

// object gives a member object, nil when it is anything else.
func (d document) object(key string) document {
	if raw := d[key]; len(raw) > 0 && raw[0] == '{' {
		return splitObject(raw)
	}
	return nil
}

// at walks down member objects.
func (d document) at(keys ...string) document {
	for _, key := range keys {
		d = d.object(key)
	}
	return d
}

// list gives the elements of a member array, nil when it is anything else.
func (d document) list(key string) []json.RawMessage {
	if raw := d[key]; len(raw) > 0 && raw[0] == '[' {
		return splitArray(raw)
	}
	return nil
}

// text gives a member string; a number or boolean is given as written.
func (d document) text(key string) string {
	s, _ := scalarText(d[key])
	return s
}

func scalarText(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		if s, ok := plainText(raw); ok {
			return s, true
		}
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err == nil
	case '{', '[', 'n':
		return "", false
	default:
		return string(raw), true
	}
}

// number gives a member number, also one written as a string.
func (d document) number(key string) (float64, bool) {
	f, err := strconv.ParseFloat(strings.TrimSpace(d.text(key)), 64)
	return f, err == nil
}

// integer gives a member that is a whole number, also one written as a string.
func (d document) integer(key string) (int64, bool) {
	s := strings.TrimSpace(d.text(key))
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != float64(int64(f)) {
		return 0, false
	}
	return int64(f), true
}

// flag gives a member boolean, also one written as a string.
func (d document) flag(key string) (value, ok bool) {
	b, err := strconv.ParseBool(strings.ToLower(d.text(key)))
	return b, err == nil
}

// link gives the URI a member refers to: a plain string, an object with
// @odata.id, or the first of an array of either.
func (d document) link(key string) string {
	links := linksOf(d[key])
	if len(links) == 0 {
		return ""
	}
	return links[0]
}

// links gives all URIs a member refers to.
func (d document) links(key string) []string { return linksOf(d[key]) }

func linksOf(raw json.RawMessage) []string {
	if len(raw) == 0 {
		return nil
	}
	switch raw[0] {
	case '"':
		if s, ok := scalarText(raw); ok && s != "" {
			return []string{s}
		}
	case '{':
		o := splitObject(raw)
		for _, key := range []string{"@odata.id", "href", "target"} {
			if s := o.text(key); s != "" {
				return []string{s}
			}
		}
	case '[':
		var out []string
		for _, e := range splitArray(raw) {
			out = append(out, linksOf(e)...)
		}
		return out
	}
	return nil
}

// resetTypes and the like: strings of a member array.
func (d document) texts(key string) []string {
	var out []string
	for _, raw := range d.list(key) {
		if s, ok := scalarText(raw); ok {
			out = append(out, s)
		}
	}
	return out
}
