// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"errors"
	"net/url"
	"strings"
)

const (
	rootPath   = "/redfish/v1"
	updatePath = rootPath + "/UpdateService"
	tasksPath  = rootPath + "/TaskService/Tasks"
)

// errForeign says that a device sent us elsewhere. The offending value is logged
// where it is met, never returned: it may carry anything.
var errForeign = errors.New("the device referred to an address outside its own origin")

// devicePath checks a URI that came in a resource: it has to be an absolute path
// on the device itself.
func devicePath(ref string) (string, error) {
	if !strings.HasPrefix(ref, "/") || strings.HasPrefix(ref, "//") {
		return "", errForeign
	}
	u, err := url.Parse(ref)
	if err != nil || u.Host != "" || u.User != nil || u.Scheme != "" {
		return "", errForeign
	}
	if !plainPath(u.EscapedPath()) || hasControl(ref) {
		return "", errForeign
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String(), nil
}

// headerPath checks a Location header, which may be relative to the request or
// name this very origin in full.
func (c *Client) headerPath(requestPath, location string) (string, error) {
	if location == "" || hasControl(location) {
		return "", errForeign
	}
	base, err := url.Parse(c.base + requestPath)
	if err != nil {
		return "", errForeign
	}
	ref, err := url.Parse(strings.ReplaceAll(location, `\`, "/"))
	if err != nil || ref.User != nil {
		return "", errForeign
	}
	// An absolute path is checked before it is resolved, since resolving removes
	// dot segments. A relative one may climb; what it comes to is checked below.
	if (ref.Host != "" || strings.HasPrefix(ref.Path, "/")) && !plainPath(ref.EscapedPath()) {
		return "", errForeign
	}
	target := base.ResolveReference(ref)
	if target.Scheme != base.Scheme || !sameHost(target, base) {
		return "", errForeign
	}
	return devicePath(target.RequestURI())
}

func sameHost(a, b *url.URL) bool {
	return strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return "443"
}

// plainPath refuses what could climb out of a path on another reading: dot-dot
// segments in any spelling, backslashes, encoded separators.
func plainPath(escaped string) bool {
	lower := strings.ToLower(escaped)
	if strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") {
		return false
	}
	lower = strings.ReplaceAll(strings.ReplaceAll(lower, `\`, "/"), "%2e", ".")
	for segment := range strings.SplitSeq(lower, "/") {
		if segment == ".." {
			return false
		}
	}
	return true
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f })
}

// leaf is the last segment of a path.
func leaf(path string) string {
	path = strings.TrimRight(path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}
