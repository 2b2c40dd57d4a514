// SPDX-License-Identifier: Apache-2.0

package secrets_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// trap knows the planted secrets in the forms in which they can leak.
type trap struct {
	forms map[string]string // form by what it is
	found []string
}

// plant adds a secret that belongs to a user.
func (t *trap) plant(name, user, secret string) string {
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

// look searches a place for all forms of all secrets.
func (t *trap) look(place string, content []byte) {
	for _, name := range slices.Sorted(maps.Keys(t.forms)) {
		at := bytes.Index(content, []byte(t.forms[name]))
		if at < 0 {
			continue
		}
		around := content[max(at-120, 0):min(at+len(t.forms[name])+40, len(content))]
		t.found = append(t.found, fmt.Sprintf("%s: %s: %q", place, name, around))
	}
}

// TestTrap: the trap snaps in every form.
func TestTrap(t *testing.T) {
	var tr trap
	secret := tr.plant("password", "admin", `p&ss/w+rd "x"`)
	for _, content := range []string{
		secret, `{"password":"p\u0026ss/w+rd \"x\""}`, "p=" + url.QueryEscape(secret), "https://admin:" + url.PathEscape(secret) + "@host",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+secret)), fmt.Sprintf("%x", secret), fmt.Sprint([]byte(secret)),
	} {
		tr.found = nil
		tr.look("here", []byte("before "+content+" after"))
		require.NotEmpty(t, tr.found, content)
	}
	tr.found = nil
	tr.look("here", []byte("p&ss"))
	require.Empty(t, tr.found)
}
