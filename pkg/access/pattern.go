// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// ErrPattern is wrapped by every refusal of a pattern.
var ErrPattern = errors.New("access: unusable pattern")

// kind is which name of a certificate a pattern is held against. Each pattern
// says it, so that a common name that looks like a SPIFFE id is none.
type kind string

const (
	kindURI   kind = "uri"
	kindDNS   kind = "dns"
	kindEmail kind = "email"
	kindCN    kind = "cn"
)

var kinds = []kind{kindURI, kindDNS, kindEmail, kindCN}

// everything matches one or more whole segments.
const everything = "**"

// pattern matches one kind of name, segment by segment.
type pattern struct {
	kind     kind
	text     string
	segments []string
}

// parsePattern reads "spiffe://domain/path" or another URI, "uri:URI", "dns:name",
// "email:address" or "cn:common name".
//
// '*' stands for any characters, also none, within a segment: a part between
// slashes of a URI, a label of a DNS name, the part before or behind the @ of an
// address, a whole common name. '**' as the last segment of a URI with a path, or
// as the first label of a DNS name, stands for one or more segments. Nothing else
// is special.
func parsePattern(text string) (pattern, error) {
	bad := func(format string, args ...any) (pattern, error) {
		return pattern{}, fmt.Errorf("%w: %s", ErrPattern, fmt.Sprintf(format, args...))
	}
	if strings.ContainsFunc(text, unicode.IsControl) || strings.TrimSpace(text) != text || text == "" {
		return bad("it is empty, or has control characters or spaces around it")
	}
	k, name := kindURI, text
	prefix, rest, ok := strings.Cut(text, ":")
	known := slices.Contains(kinds, kind(prefix))
	switch {
	case !ok:
		return bad("it must begin with spiffe://, uri:, dns:, email: or cn:")
	case strings.HasPrefix(rest, "//") && known:
		return bad("%s: is followed by the name itself, without //", prefix)
	case strings.HasPrefix(rest, "//"):
	case !known:
		return bad("%q is no kind of name; use spiffe://, uri:, dns:, email: or cn:", prefix)
	default:
		k, name = kind(prefix), rest
	}
	if name == "" {
		return bad("nothing follows %s:", k)
	}
	p := pattern{kind: k, text: text}
	switch k {
	case kindURI:
		scheme, rest, ok := strings.Cut(name, "://")
		if !ok || scheme == "" || strings.Contains(scheme, "*") || rest == "" || strings.HasPrefix(rest, "/") {
			return bad("a URI needs a scheme and a host, as in spiffe://example.org/ns/prod/*")
		}
	case kindDNS, kindCN:
	case kindEmail:
		if strings.Count(name, "@") != 1 || strings.HasPrefix(name, "@") || strings.HasSuffix(name, "@") {
			return bad("an address has one @ with something on both sides")
		}
	}
	p.segments = segmentsOf(k, name)
	for i, s := range p.segments {
		switch {
		case s == "" && (k != kindURI || i != 1):
			return bad("it has an empty segment")
		case !strings.Contains(s, everything):
		case s != everything:
			return bad("** must be a segment of its own")
		case k == kindURI && i == len(p.segments)-1 && i > 2:
		case k == kindDNS && i == 0 && len(p.segments) > 1:
		default:
			return bad("** may only be the last segment of the path of a URI or the first label of a DNS name")
		}
	}
	return p, nil
}

// segmentsOf splits a name where '*' must not cross. The parts whose case does not
// matter are in lower case.
func segmentsOf(k kind, name string) []string {
	switch k {
	case kindURI:
		s := strings.Split(name, "/")
		for i := range min(3, len(s)) { // scheme, nothing, host
			s[i] = strings.ToLower(s[i])
		}
		return s
	case kindDNS:
		return strings.Split(strings.ToLower(name), ".")
	case kindEmail:
		s := strings.Split(name, "@")
		s[len(s)-1] = strings.ToLower(s[len(s)-1])
		return s
	case kindCN:
	}
	return []string{name}
}

// matches tells whether one name of the certificate fits.
func (p pattern) matches(cert *x509.Certificate) bool {
	switch p.kind {
	case kindURI:
		for _, u := range cert.URIs {
			// As its issuer wrote it: an escaped slash stays escaped and begins no segment.
			if p.fits(u.String()) {
				return true
			}
		}
	case kindDNS:
		for _, n := range cert.DNSNames {
			if p.fits(n) {
				return true
			}
		}
	case kindEmail:
		for _, n := range cert.EmailAddresses {
			if p.fits(n) {
				return true
			}
		}
	case kindCN:
		return p.fits(cert.Subject.CommonName)
	}
	return false
}

// fits holds the pattern against one name. Names with empty or dot segments fit
// nothing: who reads them elsewhere may take them for other names.
func (p pattern) fits(name string) bool {
	have, want := segmentsOf(p.kind, name), p.segments
	for i, s := range have {
		if s == "" && (p.kind != kindURI || i != 1) || s == "." || s == ".." {
			return false
		}
	}
	switch {
	case want[len(want)-1] == everything && p.kind == kindURI:
		want = want[:len(want)-1]
		if len(have) <= len(want) {
			return false
		}
		have = have[:len(want)]
	case want[0] == everything && p.kind == kindDNS:
		want = want[1:]
		if len(have) <= len(want) {
			return false
		}
		have = have[len(have)-len(want):]
	}
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if !glob(want[i], have[i]) {
			return false
		}
	}
	return true
}

// glob matches a segment in which '*' stands for any characters.
func glob(want, have string) bool {
	parts := strings.Split(want, "*")
	if len(parts) == 1 {
		return want == have
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(have) < len(first)+len(last) || !strings.HasPrefix(have, first) || !strings.HasSuffix(have, last) {
		return false
	}
	have = have[len(first) : len(have)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(have, part)
		if i < 0 {
			return false
		}
		have = have[i+len(part):]
	}
	return true
}
