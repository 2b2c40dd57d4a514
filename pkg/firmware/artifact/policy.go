// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// ErrRefused is wrapped when a location is not one that may be used.
var ErrRefused = errors.New("refused by the artifact policy")

// Policy says from where files may be fetched.
type Policy struct {
	// Schemes that may be used: http, https and file.
	Schemes []string
	// Hosts that may be contacted, by name or address; "*.example.net" is every
	// host below a domain. Empty is any.
	Hosts []string
	// Addresses that may be contacted. Empty is every public one. Private,
	// loopback and link-local ranges are only contacted when they are listed.
	Addresses []netip.Prefix
	// FollowToHTTPS lets a redirect lead from http to https. No other change of
	// scheme is followed.
	FollowToHTTPS bool
	// FileDirs are the directories below which files may be read. A relative
	// location is relative to the first.
	FileDirs []string
}

// special are address ranges of IANA's special-purpose registries that do not
// lead to hosts of the public Internet, beyond those that netip knows.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network
	netip.MustParsePrefix("100.64.0.0/10"),   // shared, behind carrier NAT
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays, deprecated
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved and broadcast
	netip.MustParsePrefix("2001::/23"),       // protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // 6to4, leads to any IPv4 address
	netip.MustParsePrefix("3fff::/20"),       // documentation
}

// allocated is the only part of IPv6 from which public addresses are given out (RFC
// 4291, IANA's address space registry). What lies outside of it leads to IPv4 by some
// translation, IPv4-compatible and NAT64 addresses for example, or to no host.
var allocated = netip.MustParsePrefix("2000::/3")

// Public reports whether an address is one of a host on the public Internet.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	if a.Is6() && !allocated.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Check parses a location and refuses it when the policy does not allow it, as
// far as that is known without resolving names. Errors wrap ErrLocation or
// ErrRefused.
func (p *Policy) Check(locationType, location string) (Location, error) {
	l, err := Parse(locationType, location)
	if err != nil {
		return l, err
	}
	if l.Transport == File {
		_, _, err := p.fileIn(l)
		return l, err
	}
	return l, p.checkURL(l.url)
}

// checkURL checks scheme and host, and the address if that is the host.
func (p *Policy) checkURL(u *url.URL) error {
	if !slices.Contains(p.Schemes, u.Scheme) {
		return fmt.Errorf("%w: scheme %s", ErrRefused, u.Scheme)
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if len(p.Hosts) > 0 && !slices.ContainsFunc(p.Hosts, func(h string) bool { return hostMatches(strings.ToLower(h), host) }) {
		return fmt.Errorf("%w: host %s", ErrRefused, host)
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return p.checkAddress(a)
	}
	return nil
}

func hostMatches(pattern, host string) bool {
	if domain, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasPrefix(domain, ".") && strings.HasSuffix(host, domain) && len(host) > len(domain)
	}
	return pattern == host
}

// checkAddress checks an address that is about to be contacted.
func (p *Policy) checkAddress(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if len(p.Addresses) == 0 {
		if !Public(a) {
			return fmt.Errorf("%w: address %s is not a public one", ErrRefused, a)
		}
		return nil
	}
	if !slices.ContainsFunc(p.Addresses, func(r netip.Prefix) bool { return r.Contains(a) }) {
		return fmt.Errorf("%w: address %s", ErrRefused, a)
	}
	return nil
}

// checkRedirect decides whether a redirect may be followed.
func (p *Policy) checkRedirect(from, to *url.URL) error {
	if to.Scheme != from.Scheme && (!p.FollowToHTTPS || from.Scheme != "http" || to.Scheme != "https") {
		return fmt.Errorf("%w: redirect from %s to %s", ErrRefused, from.Scheme, to.Scheme)
	}
	if err := p.checkURL(to); err != nil {
		return fmt.Errorf("redirect: %w", err)
	}
	return nil
}

// fileIn returns the directory that allows a file, and the path below it.
func (p *Policy) fileIn(l Location) (dir, below string, err error) {
	if !slices.Contains(p.Schemes, "file") {
		return "", "", fmt.Errorf("%w: local files", ErrRefused)
	}
	for i, d := range p.FileDirs {
		d, err := filepath.Abs(d)
		if err != nil {
			return "", "", fmt.Errorf("artifact directory: %w", err)
		}
		file := l.path
		if !filepath.IsAbs(file) {
			if i > 0 {
				break
			}
			file = filepath.Join(d, file)
		}
		rel, err := filepath.Rel(d, filepath.Clean(file))
		if err == nil && filepath.IsLocal(rel) && rel != "." {
			return d, rel, nil
		}
	}
	return "", "", fmt.Errorf("%w: %s is not below a directory for artifacts", ErrRefused, l)
}
