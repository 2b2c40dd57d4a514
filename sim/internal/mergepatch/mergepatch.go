// SPDX-License-Identifier: Apache-2.0

// Package mergepatch is RFC 7396, JSON merge patch, on decoded documents.
package mergepatch

// Apply returns the target with the patch merged in. Objects of the target that change are changed in place.
func Apply(target, patch any) any {
	change, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	out, ok := target.(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for key, value := range change {
		if value == nil {
			delete(out, key)
		} else {
			out[key] = Apply(out[key], value)
		}
	}
	return out
}
