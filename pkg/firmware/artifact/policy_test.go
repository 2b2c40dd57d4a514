// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ typ, location, name, shown string }{
		{"https", "https://h.invalid/a/b_1.2.fwpkg", "b_1.2.fwpkg", "https://h.invalid/a/b_1.2.fwpkg"},
		{" HTTP ", "https://h.invalid/b.bin", "b.bin", "https://h.invalid/b.bin"},
		{"jfrog", "http://u:pl4nted@h.invalid:8081/b.bin?token=pl4nted#pl4nted", "b.bin", "http://h.invalid:8081/b.bin"},
		{"file", "/srv/fw/b.bin", "b.bin", "/srv/fw/b.bin"},
		{"File", "file:///srv/fw/b.bin", "b.bin", "/srv/fw/b.bin"},
		{"file", "b.bin", "b.bin", "b.bin"},
	} {
		l, err := Parse(c.typ, c.location)
		require.NoError(t, err)
		require.Equal(t, c.name, l.Name())
		for _, shown := range []string{l.String(), fmt.Sprintf("%v", l), fmt.Sprintf("%+v", l), fmt.Sprintf("%#v", l)} {
			require.Equal(t, c.shown, shown)
		}
		require.Equal(t, strings.Contains(c.location, "pl4nted"), l.Sensitive())
	}
	for _, c := range []struct{ typ, location string }{
		{"ftp", "ftp://h/b.bin"}, {"", "https://h/b.bin"}, {"https", ""}, {"https", "/srv/b.bin"}, {"https", "b.bin"},
		{"https", "s3://h/b.bin"}, {"https", "file:///b.bin"}, {"file", "https://h/b.bin"}, {"file", "s3://h/b.bin"},
		{"file", "file://host/b.bin"}, {"file", "file:///b.bin?q=1"}, {"https", "https:///b.bin"},
		{"https", "https://h/a/"}, {"https", "https://h"}, {"https", `https://h/a\`}, {"file", "/srv/"},
		{"https", "https://h/b%20c.bin"}, {"https", "https://h/.hidden"}, {"https", "https://h/b;c"}, {"file", "/srv/.."},
		{"https", "https://h/a\nb.bin"}, {"https", "https://h/%zz"}, {"https", "https://h/" + strings.Repeat("x", 300)},
		{"https", "https://h/" + strings.Repeat("x/", maxLocation)},
	} {
		_, err := Parse(c.typ, c.location)
		require.ErrorIs(t, err, ErrLocation, "%s %.40s", c.typ, c.location)
	}
	_, err := Parse("https", "https://u:pl4nted@h/%zz")
	require.NotContains(t, err.Error(), "pl4nted")
}

func TestPublicAddresses(t *testing.T) {
	for _, a := range []string{"8.8.8.8", "1.1.1.1", "2600::1", "::ffff:8.8.8.8"} {
		require.True(t, Public(netip.MustParseAddr(a)), a)
	}
	for _, a := range []string{
		"127.0.0.1", "127.8.8.8", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "0.0.0.0", "0.1.2.3", "100.64.0.1",
		"198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.0.1", "::1", "::", "fe80::1", "fc00::1", "fd00::1", "ff02::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001::1", "fec0::1",
		"::127.0.0.1", "::ffff:0:7f00:1", "::ffff:0:0:1", "3fff::1", "5f00::1", "100:0:0:1::1", "192.88.99.1", "1::1", "e000::1",
	} {
		require.False(t, Public(netip.MustParseAddr(a)), a)
	}
}

func TestPolicy(t *testing.T) {
	web := []string{"http", "https"}
	for _, c := range []struct {
		policy   Policy
		location string
		ok       bool
	}{
		{Policy{Schemes: web}, "https://files.example.net/b.bin", true},
		{Policy{Schemes: []string{"https"}}, "http://files.example.net/b.bin", false},
		{Policy{Schemes: web}, "http://127.0.0.1/b.bin", false},
		{Policy{Schemes: web}, "http://[::1]/b.bin", false},
		{Policy{Schemes: web}, "http://[::ffff:10.0.0.1]/b.bin", false},
		{Policy{Schemes: web}, "http://8.8.8.8/b.bin", true},
		{Policy{Schemes: web, Addresses: loopback}, "http://127.0.0.1/b.bin", true},
		{Policy{Schemes: web, Addresses: loopback}, "http://8.8.8.8/b.bin", false},
		{Policy{Schemes: web, Hosts: []string{"Files.example.net"}}, "http://files.EXAMPLE.net./b.bin", true},
		{Policy{Schemes: web, Hosts: []string{"files.example.net"}}, "http://other.example.net/b.bin", false},
		{Policy{Schemes: web, Hosts: []string{"*.example.net"}}, "http://a.b.example.net/b.bin", true},
		{Policy{Schemes: web, Hosts: []string{"*.example.net"}}, "http://example.net/b.bin", false},
		{Policy{Schemes: web, Hosts: []string{"*.example.net"}}, "http://badexample.net/b.bin", false},
		{Policy{Schemes: web, Hosts: []string{"*"}}, "http://example.net/b.bin", false},
	} {
		_, err := c.policy.Check("https", c.location)
		if c.ok {
			require.NoError(t, err, "%+v %s", c.policy, c.location)
			continue
		}
		require.ErrorIs(t, err, ErrRefused, "%+v %s", c.policy, c.location)
	}
}

// TestPrivateAddressesAreNotContacted has a server on loopback, which nothing may
// reach: not by its address, a name, a redirect, or a name that a redirect leads to.
func TestPrivateAddressesAreNotContacted(t *testing.T) {
	t.Parallel()
	hidden := newServer(t, content(1, 100))
	_, port, _ := strings.Cut(strings.TrimPrefix(hidden.URL, "http://"), ":")
	for name, c := range map[string]struct {
		addresses []string
		location  string
	}{
		"address":               {nil, hidden.URL + "/file.bin"},
		"mapped address":        {nil, "http://[::ffff:127.0.0.1]:" + port + "/file.bin"},
		"localhost":             {nil, "http://localhost:" + port + "/file.bin"},
		"name":                  {[]string{"127.0.0.1"}, "http://files.example.net:" + port + "/file.bin"},
		"name among others":     {[]string{"169.254.169.254", "127.0.0.1", "10.0.0.1"}, "http://files.example.net:" + port + "/file.bin"},
		"name of this very net": {[]string{"0.0.0.0"}, "http://files.example.net:" + port + "/file.bin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *Options) {
				o.Policy.Addresses = nil
				if c.addresses != nil {
					o.Resolver = nameServer(t, c.addresses...)
				}
			})
			_, err := r.fetch(c.location)
			require.ErrorIs(t, err, ErrRefused)
			require.Empty(t, hidden.requests())
		})
	}
}

// TestRedirects lets a server that may be used lead to what may not. It listens on
// 127.0.0.1, the only address allowed.
func TestRedirects(t *testing.T) {
	t.Parallel()
	only := func(o *Options) { o.Policy.Addresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} }
	target := newServer(t, content(1, 100))
	for name, c := range map[string]struct {
		to  string
		err error
	}{
		"allowed":         {target.URL + "/x", nil},
		"private address": {"http://127.0.0.2:1/x", ErrRefused},
		"metadata":        {"http://169.254.169.254/latest", ErrRefused},
		"name":            {"http://inside.example.net:1/x", ErrRefused},
		"other scheme":    {"https://127.0.0.1:1/x", ErrRefused},
		"file":            {"file:///etc/passwd", ErrStatus},
		"gopher":          {"gopher://127.0.0.1/x", ErrRefused},
		"no URL":          {"http://%zz", ErrStatus},
		"itself":          {"", ErrStatus},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, nil)
			s.change(func() { s.redirect = c.to })
			if c.to == "" {
				s.change(func() { s.redirect = s.URL + "/again" })
			}
			r := newRig(t, only, func(o *Options) { o.Resolver = nameServer(t, "10.0.0.1") })
			_, err := r.fetch(s.URL + "/file.bin")
			if c.err == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.err)
			if name == "itself" {
				require.Len(t, s.requests(), 6)
			}
		})
	}
	t.Run("to https where that is allowed", func(t *testing.T) {
		p := Policy{Schemes: []string{"http", "https"}, FollowToHTTPS: true}
		from, err := Parse("https", "http://files.example.net/x.bin")
		require.NoError(t, err)
		to, err := Parse("https", "https://files.example.net/x.bin")
		require.NoError(t, err)
		require.NoError(t, p.checkRedirect(from.url, to.url))
		require.ErrorIs(t, p.checkRedirect(to.url, from.url), ErrRefused)
		p.Hosts = []string{"other.example.net"}
		require.ErrorIs(t, p.checkRedirect(from.url, to.url), ErrRefused)
	})
}

func TestNames(t *testing.T) {
	require.Equal(t, "firmware_objects/ACME_1", CacheDir("ACME_1", false))
	require.Equal(t, "firmware_objects_ephemeral/ACME_1-x", CacheDir("ACME_1-x", true))
	cache, ok := EphemeralCache("firmware_objects_ephemeral/ACME_1-x")
	require.True(t, ok)
	require.Equal(t, "ACME_1-x", cache)
	for _, dir := range []string{"firmware_objects/x", "firmware_objects_ephemeral", "firmware_objects_ephemeral/", "firmware_objects_ephemeral/a/b", "firmware_objects_ephemeral/.."} {
		_, ok := EphemeralCache(dir)
		require.False(t, ok, dir)
	}
	require.NoError(t, CheckPath("prod/a.bin"))
	for _, p := range []string{"a.bin", "../a.bin", "prod/../a.bin", "prod/x/a.bin", "/a.bin", "prod/", ".x/a.bin"} {
		require.ErrorIs(t, CheckPath(p), ErrLocation, p)
	}
}
