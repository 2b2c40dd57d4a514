// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"net/url"
	"strings"
)

// concealed is the query of a location of which user info or query were left out.
const concealed = "?concealed"

// Conceal returns a manifest as it may be kept: of its locations, user info and
// queries are left out, because passwords and signatures of URLs must not lie on a
// disk. One without any is returned as it is.
func Conceal(data []byte) ([]byte, error) {
	root, err := decode(data)
	if err != nil {
		return nil, err
	}
	if !conceal(map[string]any(root)) {
		return data, nil
	}
	kept, err := json.Marshal(root)
	if err != nil {
		return nil, errorf(KindSyntax, "%s%v", prefixSyntax, err)
	}
	return kept, nil
}

// conceal changes the locations below a value, and reports whether there were any to
// change.
func conceal(v any) bool {
	changed := false
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			changed = conceal(e) || changed
		}
	case map[string]any:
		for key, e := range v {
			if text, ok := e.(string); ok && key == "Location" && sensitive(text) {
				v[key], changed = Redact(text)+concealed, true
				continue
			}
			changed = conceal(e) || changed
		}
	}
	return changed
}

// sensitive reports whether a location has a part that may be secret. One that cannot
// be taken apart may have it anywhere.
func sensitive(location string) bool {
	location = strings.TrimSpace(location)
	if !strings.Contains(location, "://") {
		return false
	}
	u, err := url.Parse(location)
	return err != nil || u.User != nil || u.RawQuery != ""
}

// Concealed reports whether a part of the location was left out by Conceal, so that
// nothing can be fetched from it.
func (a *Artifact) Concealed() bool { return strings.HasSuffix(a.Location, concealed) }

// Sensitive reports whether a part of the location may be secret.
func (a *Artifact) Sensitive() bool { return sensitive(a.Location) }
