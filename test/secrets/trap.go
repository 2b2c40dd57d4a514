// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Trap knows planted secrets in the forms in which they can leak.
type Trap struct {
	// Found is where Look has found them.
	Found []string

	forms map[string]string // form by what it is
}

// Forms is how many forms are looked for.
func (t *Trap) Forms() int { return len(t.forms) }

// Plant adds a secret that belongs to a user, and returns it.
func (t *Trap) Plant(name, user, secret string) string {
	if t.forms == nil {
		t.forms = map[string]string{}
	}
	quoted, err := json.Marshal(secret)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	pair := []byte(user + ":" + secret)
	for form, text := range map[string]string{
		"plain":             secret,
		"JSON":              string(bytes.Trim(quoted, `"`)),
		"query escaped":     url.QueryEscape(secret),
		"path escaped":      url.PathEscape(secret),
		"user info escaped": strings.TrimPrefix(url.UserPassword("", secret).String(), ":"),
		"base64":            unpadded(base64.StdEncoding.EncodeToString([]byte(secret))),
		"base64 of pair":    unpadded(base64.StdEncoding.EncodeToString(pair)),
		"base64url":         base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"base64url of pair": base64.RawURLEncoding.EncodeToString(pair),
		"hex":               fmt.Sprintf("%x", secret),
		"bytes":             strings.Trim(fmt.Sprint([]byte(secret)), "[]"),
	} {
		t.forms[name+", "+form] = text
	}
	return secret
}

// unpadded leaves out the end of a base64 text, which depends on what follows.
func unpadded(text string) string { return strings.TrimRight(text, "=") }

// Look searches a place for all forms of all secrets.
func (t *Trap) Look(place string, content []byte) {
	for _, name := range slices.Sorted(maps.Keys(t.forms)) {
		at := bytes.Index(content, []byte(t.forms[name]))
		if at < 0 {
			continue
		}
		around := content[max(at-120, 0):min(at+len(t.forms[name])+40, len(content))]
		t.Found = append(t.Found, fmt.Sprintf("%s: %s: %q", place, name, around))
	}
}
