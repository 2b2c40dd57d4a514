// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/secret"
)

func typeByID(t *testing.T, id string) node.Type {
	t.Helper()
	typ, ok := node.ByID(id)
	require.True(t, ok)
	return typ
}

func TestEndpointRules(t *testing.T) {
	tests := []struct {
		name       string
		typ        string
		kind       node.EndpointKind
		registered bool
		in         *node.EndpointRequest
		wantPort   uint16
		code       node.Code
		field      string
		text       string
	}{
		{name: "bmc default port", typ: "compute_gb200_nvidia", kind: node.EndpointBMC,
			in: &node.EndpointRequest{Address: "10.0.0.1", MAC: "aa"}, wantPort: 443},
		{name: "own port", typ: "compute_gb200_nvidia", kind: node.EndpointBMC,
			in: &node.EndpointRequest{Address: "10.0.0.1", MAC: "aa", Port: 65535}, wantPort: 65535},
		{name: "port too large", typ: "compute_gb200_nvidia", kind: node.EndpointBMC,
			in:   &node.EndpointRequest{Address: "10.0.0.1", MAC: "aa", Port: 65536},
			code: node.CodePortOutOfRange, field: "bmc_endpoint.port", text: "port 65536 is out of range (must be 1-65535)"},
		{name: "no endpoint", typ: "switch_gb200_nvidia", kind: node.EndpointHost,
			code: node.CodeEndpointMissing, field: "host_endpoint", text: "missing host endpoint"},
		{name: "no address", typ: "switch_gb200_nvidia", kind: node.EndpointHost,
			in:   &node.EndpointRequest{Address: " "},
			code: node.CodeAddressMissing, field: "host_endpoint.interface.ip_address", text: "missing host endpoint ip_address"},
		{name: "shelf needs mac", typ: "powershelf_gb200_delta", kind: node.EndpointBMC,
			in:   &node.EndpointRequest{Address: "10.0.0.1"},
			code: node.CodeMACMissing, field: "bmc_endpoint.interface.mac_address", text: "missing BMC endpoint mac_address"},
		{name: "switch bmc without mac", typ: "switch_gb200_nvidia", kind: node.EndpointBMC,
			in: &node.EndpointRequest{Address: "10.0.0.1"}, wantPort: 443},
		{name: "registered switch bmc needs mac", typ: "switch_gb200_nvidia", kind: node.EndpointBMC, registered: true,
			in: &node.EndpointRequest{Address: "10.0.0.1"}, code: node.CodeMACMissing, text: "missing BMC endpoint mac_address"},
		{name: "switch host ssh port becomes https", typ: "switch_gb300_nvidia", kind: node.EndpointHost,
			in: &node.EndpointRequest{Address: "10.0.0.1", Port: 22}, wantPort: 443},
		{name: "switch host default", typ: "switch_gb300_nvidia", kind: node.EndpointHost,
			in: &node.EndpointRequest{Address: "10.0.0.1"}, wantPort: 443},
		{name: "switch host other port", typ: "switch_gb300_nvidia", kind: node.EndpointHost,
			in: &node.EndpointRequest{Address: "10.0.0.1", Port: 8765}, wantPort: 8765},
		{name: "in-band host is ssh", typ: "compute_gb200_wiwynn", kind: node.EndpointHost,
			in: &node.EndpointRequest{Address: "10.0.0.1"}, wantPort: 22},
		{name: "other compute host", typ: "compute_gb300_nvidia", kind: node.EndpointHost,
			in: &node.EndpointRequest{Address: "10.0.0.1"}, wantPort: 443},
		{name: "session token", typ: "compute_gb300_nvidia", kind: node.EndpointBMC,
			in:   &node.EndpointRequest{Address: "10.0.0.1", MAC: "aa", SessionToken: true},
			code: node.CodeCredentialsUnsupported, field: "bmc_endpoint.credentials",
			text: "BMC endpoint credentials use unsupported session_token auth; use user_pass credentials"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := node.RulesFor(typeByID(t, tt.typ), tt.kind, tt.registered).Endpoint(tt.in)
			if tt.code == "" {
				require.NoError(t, err)
				require.Equal(t, tt.wantPort, got.Port)
				return
			}
			require.ErrorIs(t, err, &node.Error{Code: tt.code, Field: tt.field})
			require.EqualError(t, err, tt.text)
		})
	}
}

func TestBlankCredentialsAreNone(t *testing.T) {
	rules := node.RulesFor(typeByID(t, "switch_gb200_nvidia"), node.EndpointHost, false)
	tests := []struct {
		user, password string
		none           bool
	}{
		{"admin", "pw", false}, {"admin", "", true}, {"admin", "  ", true}, {"", "pw", true}, {" \t", "pw", true}, {"", "", true},
	}
	for _, tt := range tests {
		got, err := rules.Endpoint(&node.EndpointRequest{Address: "10.0.0.1",
			Credentials: node.Credentials{User: tt.user, Password: secret.New(tt.password)}})
		require.NoError(t, err)
		require.Equal(t, tt.none, got.Credentials.Empty(), "%q", tt.user)
		err = got.RequireCredentials(node.EndpointHost)
		if tt.none {
			require.Empty(t, got.Credentials.User)
			require.ErrorIs(t, err, &node.Error{Code: node.CodeCredentialsMissing, Field: "host_endpoint.credentials"})
			continue
		}
		require.NoError(t, err)
	}
}

func TestEndpointNames(t *testing.T) {
	e := node.Endpoint{Address: "fd00::7", Port: 443}
	require.Equal(t, "[fd00::7]:443", e.HostPort())
	require.Equal(t, "fd00::7", e.ServerName())
	e = node.Endpoint{Address: "[fd00::7]", Port: 8443, HostName: "sw1.example"}
	require.Equal(t, "[fd00::7]:8443", e.HostPort())
	require.Equal(t, "sw1.example", e.ServerName())
}

func TestCredentialKind(t *testing.T) {
	require.Equal(t, node.EndpointHost, node.CredentialKind(node.FamilySwitch, false))
	require.Equal(t, node.EndpointBMC, node.CredentialKind(node.FamilySwitch, true))
	require.Equal(t, node.EndpointBMC, node.CredentialKind(node.FamilyCompute, false))
	require.Equal(t, node.EndpointBMC, node.CredentialKind(node.FamilyPowerShelf, true))
}

func TestTargetPolicy(t *testing.T) {
	var strict node.TargetPolicy
	for _, ok := range []string{"10.1.2.3", "fd00::1", "[fd00::1]", "::ffff:10.0.0.1"} {
		require.NoError(t, strict.Check(ok), ok)
	}
	for _, host := range []string{"127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "169.254.1.1", "fe80::1", "::ffff:127.0.0.1", "::ffff:169.254.0.1"} {
		require.ErrorIs(t, strict.Check(host), &node.Error{Code: node.CodeTargetNotAllowed}, host)
	}
	for _, host := range []string{"", "switch-1", "10.0.0.300"} {
		require.ErrorIs(t, strict.Check(host), &node.Error{Code: node.CodeTargetNotIP}, host)
	}
	lab := node.TargetPolicy{AllowLoopback: true}
	require.NoError(t, lab.Check("127.3.4.5"))
	require.Error(t, lab.Check("169.254.1.1"))
}

func TestEndpointNeverPrintsThePassword(t *testing.T) {
	const planted = "pl4nted"
	in := node.EndpointRequest{Address: "10.0.0.1", Credentials: node.Credentials{User: "admin", Password: secret.New(planted)}}
	out, err := node.EndpointRules{Kind: node.EndpointHost, DefaultPort: 443}.Endpoint(&in)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %+v %#v", in, in, in, out, out), planted)
}
