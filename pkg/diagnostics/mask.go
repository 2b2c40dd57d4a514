// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

// MaskText masks secrets in plain text: lines of private keys, which have to be whole
// for that, what follows secret names, and the user information of URLs.
func MaskText(text string) string { return telemetry.RedactText(maskCommands(maskKeys(text))) }

// inCommand matches passwords where people give them to commands, which the journals of
// controllers and hosts repeat.
var inCommand = regexp.MustCompile(`((?i:(?:^|\s)--?(?:password|passwd|token|secret)[ =])|` +
	`\bipmitool\b[^\n]*?\s-P ?|\bsshpass -p ?|\bcurl\b[^\n]*?\s(?:-u|--user)[ =]?[^\s:]+:)("[^"]*"|'[^']*'|[^\s"']+)`)

// maskCommands masks passwords in command lines.
func maskCommands(text string) string {
	if !strings.Contains(text, "-") { // most texts, and quicker than the expression
		return text
	}
	return inCommand.ReplaceAllString(text, "${1}"+telemetry.Mask)
}

// maskKeys masks PEM private keys.
func maskKeys(text string) string {
	const begin, end = "-----BEGIN ", "-----END "
	if !strings.Contains(text, "PRIVATE KEY-----") {
		return text
	}
	var b strings.Builder
	for {
		i := strings.Index(text, begin)
		if i < 0 {
			break
		}
		head, _, _ := strings.Cut(text[i:], "\n")
		if !strings.Contains(head, "PRIVATE KEY-----") {
			b.WriteString(text[:i+len(begin)])
			text = text[i+len(begin):]
			continue
		}
		b.WriteString(text[:i] + telemetry.Mask)
		rest := text[i:]
		j := strings.Index(rest, end)
		if j < 0 {
			return b.String()
		}
		_, after, _ := strings.Cut(rest[j+len(end):], "-----")
		text = after
	}
	b.WriteString(text)
	return b.String()
}

// decodeMasked reads a document and masks the secrets in it: values of members
// with secret names, with all that is below them, and secrets within texts.
// Numbers keep the digits they were written with.
func decodeMasked(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("decode document: something follows it")
	}
	return mask(v, false), nil
}

// mask masks in place and returns the value.
func mask(v any, secret bool) any {
	switch v := v.(type) {
	case map[string]any:
		pair := secretPair(v)
		for key, member := range v {
			if named, ok := member.(map[string]any); ok && strings.HasSuffix(snakeCase(key), "community") {
				member = maskNames(named)
			}
			v[key] = mask(member, secret && key != odataID || secretKey(key) || pair && strings.HasSuffix(strings.ToLower(key), "value"))
		}
		return v
	case []any:
		for i := range v {
			v[i] = mask(v[i], secret)
		}
		return v
	case string:
		if secret && v != "" {
			return telemetry.Mask
		}
		return MaskText(v)
	case json.Number:
		if secret {
			return telemetry.Mask
		}
	}
	return v // booleans and null tell nothing
}

// odataID is where a link leads, which is no secret below whatever name.
const odataID = "@odata.id"

// maskNames masks the names of members: NVUE has SNMP communities by their names.
func maskNames(v map[string]any) map[string]any {
	out := make(map[string]any, len(v))
	for _, key := range sortedKeys(v) {
		out[fmt.Sprintf("%s-%d", telemetry.Mask, len(out)+1)] = v[key]
	}
	return out
}

// secretPair tells an element whose value is secret because of the name beside it,
// as lists of attributes and headers have it.
func secretPair(v map[string]any) bool {
	for key, member := range v {
		switch strings.ToLower(key) {
		case "name", "key", "attributename":
			if name, ok := member.(string); ok && secretKey(name) {
				return true
			}
		}
	}
	return false
}

// secretKey tells members whose values are secret. Redfish and NVUE write names in
// camel case, of which the parts count, or with dashes.
func secretKey(key string) bool {
	snake := snakeCase(key)
	if telemetry.IsSecretKey(key) || telemetry.IsSecretKey(snake) {
		return true
	}
	for _, part := range [...]string{
		"passphrase", "community", "private_key", "shared_secret", "shared_key", "encryption_key", "access_key", "secret_key", "auth_key", "priv_key", "authentication_key",
		"session_key", "pre_shared", "passcode",
	} {
		if strings.Contains(snake, part) {
			return true
		}
	}
	return false
}

// snakeCase turns "XAuthToken" into "x_auth_token".
func snakeCase(key string) string {
	var b strings.Builder
	runes := []rune(key)
	for i, r := range runes {
		switch {
		case r == '-' || r == '.' || r == ' ':
			b.WriteByte('_')
			continue
		case unicode.IsUpper(r) && i > 0 &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]) && unicode.IsUpper(runes[i-1])):
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
