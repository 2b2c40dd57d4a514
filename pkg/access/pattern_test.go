// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// certificate makes one with the names in it; nothing verifies it here.
func certificate(t *testing.T, names ...string) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{}
	for _, name := range names {
		switch kind(name[:2]) {
		case "ur":
			u, err := url.Parse(name[4:])
			require.NoError(t, err)
			c.URIs = append(c.URIs, u)
		case "dn":
			c.DNSNames = append(c.DNSNames, name[4:])
		case "em":
			c.EmailAddresses = append(c.EmailAddresses, name[6:])
		case "cn":
			c.Subject = pkix.Name{CommonName: name[3:]}
		default:
			t.Fatalf("unknown name %q", name)
		}
	}
	return c
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		fits    []string
		not     []string
	}{
		{
			"spiffe://example.org/ns/prod/sa/nico",
			[]string{"uri:spiffe://example.org/ns/prod/sa/nico", "uri:SPIFFE://Example.org/ns/prod/sa/nico"},
			[]string{
				"uri:spiffe://example.org/ns/prod/sa/nico/x", "uri:spiffe://example.org/ns/prod/sa/Nico", "uri:spiffe://example.org/ns/prod/sa",
				"uri:https://example.org/ns/prod/sa/nico", "cn:spiffe://example.org/ns/prod/sa/nico", "dns:spiffe://example.org/ns/prod/sa/nico",
				"uri:spiffe://example.org.evil/ns/prod/sa/nico", "uri:spiffe://example.org/ns/prod/sa/nico?x",
			},
		},
		{
			"spiffe://example.org/ns/*/sa/rack-*",
			[]string{"uri:spiffe://example.org/ns/a/sa/rack-1", "uri:spiffe://example.org/ns/a.b/sa/rack-"},
			[]string{
				"uri:spiffe://example.org/ns/a/b/sa/rack-1", "uri:spiffe://example.org/ns//sa/rack-1", "uri:spiffe://example.org/ns/a/sa/rack",
				"uri:spiffe://example.org/ns/../sa/rack-1", "uri:spiffe://example.org/ns/a/sa/rack-1/admin",
			},
		},
		{
			"uri:spiffe://example.org/ns/prod/**",
			[]string{"uri:spiffe://example.org/ns/prod/sa", "uri:spiffe://example.org/ns/prod/sa/x/y", "uri:spiffe://example.org/ns/prod/a%2Fb"},
			[]string{
				"uri:spiffe://example.org/ns/prod", "uri:spiffe://example.org/ns/prod/", "uri:spiffe://example.org/ns/production/sa",
				"uri:spiffe://example.org/ns/prod/../dev/sa", "uri:spiffe://example.org/ns%2Fprod/sa",
			},
		},
		{
			"dns:*.mon.example.net", []string{"dns:a.mon.example.net", "dns:A.MON.example.net", "dns:*.mon.example.net"},
			[]string{"dns:mon.example.net", "dns:a.b.mon.example.net", "dns:.mon.example.net", "cn:a.mon.example.net", "dns:a.mon.example.net.evil"},
		},
		{
			"dns:**.example.net", []string{"dns:a.example.net", "dns:a.b.example.net"},
			[]string{"dns:example.net", "dns:a.xexample.net", "dns:aexample.net"},
		},
		{
			"email:*@example.net", []string{"email:ops@example.net", "email:Ops@EXAMPLE.net"},
			[]string{"email:ops@example.net.evil", "email:a@b@example.net", "email:@example.net", "cn:ops@example.net"},
		},
		{"cn:rack-*-a*b", []string{"cn:rack-1-axb", "cn:rack--ab", "cn:rack-/x-ab"}, []string{"cn:rack-ab", "cn:rack-1-a", "uri:rack-1-axb"}},
		{"cn:*", []string{"cn:anything"}, []string{"dns:anything"}},
		{"cn:a?[b]", []string{"cn:a?[b]"}, []string{"cn:axb"}},
	} {
		p, err := parsePattern(c.pattern)
		require.NoError(t, err, c.pattern)
		for _, name := range c.fits {
			require.True(t, p.matches(certificate(t, name)), "%s fits %s", name, c.pattern)
		}
		for _, name := range c.not {
			require.False(t, p.matches(certificate(t, name)), "%s does not fit %s", name, c.pattern)
		}
		require.False(t, p.matches(certificate(t)), "a certificate without names does not fit %s", c.pattern)
	}
}

func TestBadPatterns(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " cn:x", "cn:x\n", "nico", "cn:", "ou:x", "dns://a", "uri:/a", "uri:spiffe:///a", "*://a/b", "spiffe://", "spiffe://a//b", "spiffe://a/",
		"spiffe://**/x", "spiffe://**", "spiffe://a/**/b", "spiffe://a/x**", "dns:**", "dns:a.**", "dns:a..b", "cn:**", "email:a", "email:@a", "email:a@", "email:a@b@c",
	} {
		require.ErrorIs(t, CheckPattern(text), ErrPattern, text)
	}
	_, err := NewPolicy(Settings{Viewers: []string{"x"}, Admins: []string{"cn:ok", "ou:y"}, Default: roleCount})
	require.ErrorIs(t, err, ErrPattern)
	for _, part := range []string{`viewer "x"`, `admin "ou:y"`, "is no role"} {
		require.ErrorContains(t, err, part)
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	p, err := NewPolicy(Settings{
		Default:   Operator,
		Viewers:   []string{"spiffe://d/dashboard", "cn:both"},
		Operators: []string{"dns:nico.example.net"},
		Admins:    []string{"email:root@example.net", "cn:both"},
	})
	require.NoError(t, err)
	of := func(p *Policy, names ...string) Principal {
		return p.Of(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate(t, names...)}}, "10.0.0.1:99")
	}
	for want, names := range map[Role][][]string{
		Viewer:   {{"uri:spiffe://d/dashboard"}}, // below the default
		Operator: {{"dns:nico.example.net"}, {"cn:somebody"}, {"uri:https://d/dashboard"}},
		Admin:    {{"email:root@example.net"}, {"cn:both"}, {"uri:spiffe://d/dashboard", "cn:both"}},
		None:     {{"uri:spiffe://d/dashboard", "uri:spiffe://d/other"}, {"uri:https://x/y", "uri:spiffe://d/other", "cn:both"}},
	} {
		for _, n := range names {
			require.Equal(t, want, of(p, n...).Role, n)
		}
	}
	require.Equal(t, Principal{Identity: "spiffe://d/dashboard", Role: Viewer, Peer: "10.0.0.1:99"}, of(p, "uri:spiffe://d/dashboard"))
	require.Equal(t, Principal{Identity: "unknown", Role: Operator, Peer: "p"}, p.Of(nil, "p"), "no TLS")
	require.Equal(t, Principal{Identity: "unknown", Role: None, Peer: "p"}, p.Of(&tls.ConnectionState{}, "p"), "no certificate")
	require.Equal(t, None, of(&Policy{}, "cn:both").Role)
	require.Equal(t, Admin, of(Open(Admin), "cn:both").Role)
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for r := None; r < roleCount; r++ {
		got, err := ParseRole(r.String())
		require.NoError(t, err)
		require.Equal(t, r, got)
		for least := None; least < roleCount; least++ {
			require.Equal(t, r >= least, r.Allows(least))
		}
	}
	require.False(t, roleCount.Allows(None))
	require.Equal(t, "role(4)", roleCount.String())
	_, err := ParseRole("root")
	require.Error(t, err)
	_, ok := FromContext(t.Context())
	require.False(t, ok)
	p, ok := FromContext(WithPrincipal(t.Context(), Principal{Identity: "x", Role: Admin}))
	require.True(t, ok)
	require.Equal(t, Principal{Identity: "x", Role: Admin}, p)
}
