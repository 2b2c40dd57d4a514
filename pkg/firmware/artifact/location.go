// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// ErrLocation is wrapped by the errors about a location or its type.
var ErrLocation = errors.New("unusable artifact location")

// Transport is how a file is fetched.
type Transport uint8

// Transports.
const (
	// Web is HTTP or HTTPS.
	Web Transport = iota + 1
	// File is a file that this process can read.
	File
)

// maxLocation bounds a location in bytes.
const maxLocation = 8 << 10

// Location is where a file comes from.
type Location struct {
	Transport Transport
	// token says that the access token goes along.
	token bool
	url   *url.URL
	path  string
	name  string
}

// Parse reads a location of a manifest. The type is http, https, artifactory,
// jfrog or file in any case; whether a URL is fetched over TLS follows from the
// URL alone. Errors wrap ErrLocation.
func Parse(locationType, location string) (Location, error) {
	location = strings.TrimSpace(location)
	var l Location
	switch typ := strings.ToLower(strings.TrimSpace(locationType)); typ {
	case "http", "https":
		l.Transport = Web
	case "artifactory", "jfrog":
		l.Transport, l.token = Web, true
	case "file":
		l.Transport = File
	default:
		return l, fmt.Errorf("%w: location type %q is not supported", ErrLocation, locationType)
	}
	switch {
	case location == "":
		return l, fmt.Errorf("%w: it is empty", ErrLocation)
	case len(location) > maxLocation:
		return l, fmt.Errorf("%w: it has %d bytes, at most %d are possible", ErrLocation, len(location), maxLocation)
	case strings.ContainsFunc(location, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return l, fmt.Errorf("%w: it has control characters", ErrLocation)
	}
	if err := l.parse(location, locationType); err != nil {
		return l, err
	}
	return l, l.setName()
}

func (l *Location) parse(location, locationType string) error {
	isURL := strings.Contains(location, "://")
	if !isURL {
		if l.Transport != File {
			return fmt.Errorf("%w: location type %q needs an HTTP URL, not a path", ErrLocation, locationType)
		}
		l.path = location
		return nil
	}
	u, err := url.Parse(location)
	if err != nil {
		// The parser's own error quotes the location, secrets included.
		return fmt.Errorf("%w: it is no URL", ErrLocation)
	}
	switch u.Scheme {
	case "http", "https":
		if l.Transport != Web {
			return fmt.Errorf("%w: location type %q needs a local path, not an HTTP URL", ErrLocation, locationType)
		}
		if u.Hostname() == "" {
			return fmt.Errorf("%w: the URL has no host", ErrLocation)
		}
		u.Fragment, u.RawFragment = "", ""
		l.url = u
	case "file":
		if l.Transport != File {
			return fmt.Errorf("%w: location type %q needs an HTTP URL, not a path", ErrLocation, locationType)
		}
		if u.Host != "" && u.Host != "localhost" || u.User != nil || u.RawQuery != "" {
			return fmt.Errorf("%w: a file URL has a path and nothing else", ErrLocation)
		}
		l.path = u.Path
	default:
		return fmt.Errorf("%w: scheme %q is not supported", ErrLocation, u.Scheme)
	}
	return nil
}

// setName takes the file's name from the last element, which is not unescaped:
// escaped names are refused.
func (l *Location) setName() error {
	p := l.path
	if l.Transport == Web {
		p = l.url.EscapedPath()
	}
	if strings.HasSuffix(p, "/") || strings.HasSuffix(p, `\`) || p == "" {
		return fmt.Errorf("%w: %s does not name a file", ErrLocation, l)
	}
	l.name = path.Base(p)
	if l.Transport == File {
		l.name = l.name[strings.LastIndexByte(l.name, '\\')+1:]
	}
	if err := CheckName(l.name); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrLocation, l, err)
	}
	return nil
}

// CheckName refuses file names that could be misunderstood anywhere: all but
// letters, digits, '.', '_' and '-', and a leading dot. Errors wrap ErrLocation.
func CheckName(name string) error {
	if name == "" || len(name) > 200 || name[0] == '.' {
		return fmt.Errorf("%w: file name %q", ErrLocation, name)
	}
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			continue
		}
		return fmt.Errorf("%w: file name %q", ErrLocation, name)
	}
	return nil
}

// Name is the file's name.
func (l Location) Name() string { return l.name }

// String tells the location without user info, query and fragment.
func (l Location) String() string {
	if l.url == nil {
		return l.path
	}
	return (&url.URL{Scheme: l.url.Scheme, Host: l.url.Host, Path: l.url.Path, RawPath: l.url.RawPath}).String()
}

// Sensitive reports whether String leaves something out that may be secret. The
// whole location then travels in the sealed secrets of the download's command.
func (l Location) Sensitive() bool {
	return l.url != nil && (l.url.User != nil || l.url.RawQuery != "")
}

// Format keeps the secrets out of every printed form.
func (l Location) Format(f fmt.State, _ rune) { fmt.Fprint(f, l.String()) }
