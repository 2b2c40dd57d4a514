// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
)

// object is a JSON object that is read leniently: what is missing or of another
// type than asked for counts as absent. Keys are case-sensitive.
type object map[string]any

// decode reads one JSON object and nothing behind it.
func decode(data []byte) (object, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return nil, errorf(KindSyntax, "%s%v", prefixSyntax, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errorf(KindSyntax, "%sdata after the end of the object", prefixSyntax)
	}
	o, ok := v.(map[string]any)
	if !ok {
		return nil, errorf(KindSyntax, "%sit is no JSON object", prefixSyntax)
	}
	return o, nil
}

// text returns a string member, "" when there is none.
func (o object) text(key string) string {
	s, _ := o[key].(string)
	return s
}

// member returns an object member, nil when there is none.
func (o object) member(key string) object {
	m, _ := o[key].(map[string]any)
	return m
}

// list returns an array member, and whether there is one.
func (o object) list(key string) ([]any, bool) {
	l, ok := o[key].([]any)
	return l, ok
}

// each calls do for the objects of an array member, with their places in it.
func (o object) each(key string, do func(i int, o object)) {
	l, _ := o.list(key)
	for i, v := range l {
		if m, ok := v.(map[string]any); ok {
			do(i, m)
		}
	}
}

// flag returns a boolean member, or otherwise.
func (o object) flag(key string, otherwise bool) bool {
	if b, ok := o[key].(bool); ok {
		return b
	}
	return otherwise
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
