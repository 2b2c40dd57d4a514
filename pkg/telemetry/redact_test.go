// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rackbus/rackbus/pkg/telemetry"
)

func TestIsSecretKey(t *testing.T) {
	for _, key := range []string{
		"password", "Passwd", "pwd", "pass", "token", "secret", "credential", "api_key", "API-Key", "apikey",
		"authorization", "Cookie", "Set-Cookie", "session", "accessToken", "access_token", "clientsecret",
		"bmc_password", "bmc.passwd", "root-pwd", "user_pass", "x_api_key", "proxy_authorization", "my_cookie",
		"ssh_session", "passwordHash", "newPasswords", `"password"`, " 'token' ", "credentials", "tls_private_key",
	} {
		require.True(t, telemetry.IsSecretKey(key), key)
	}
	for _, key := range []string{"user", "ip", "compass", "sessional_metric", "description", "", "session_id_x", "tokens", "secretary", "node", "err"} {
		require.False(t, telemetry.IsSecretKey(key), key)
	}
}

func TestRedactText(t *testing.T) {
	tests := []struct{ in, want string }{
		{"nothing here", "nothing here"},
		{"user=admin ip=10.0.0.1", "user=admin ip=10.0.0.1"},
		{"password=abc", "password=XXXX"},
		{"password=", "password="},
		{"user=admin password=my pass word node=n1", "user=admin password=XXXX node=n1"},
		{"password = abc, user=x", "password = XXXX, user=x"},
		{`password="a \" b" user=x`, `password="XXXX" user=x`},
		{`password='it\'s' user=x`, `password='XXXX' user=x`},
		{`password="never closed`, `password="XXXX`},
		{`{"password":"abc","user":"admin"}`, `{"password":"XXXX","user":"admin"}`},
		{`body {\"access_token\":\"abc\",\"n\":1}`, `body {\"access_token\":\"XXXX\",\"n\":1}`},
		{"Authorization: Basic YWRtaW46cHc=\nHost: x", "Authorization: XXXX\nHost: x"},
		{"(token: abc def) rest", "(token: XXXX) rest"},
		{"[token=abc] [secret=x,y]", "[token=XXXX] [secret=XXXX,y]"},
		{"{User:admin Password:abc Port:443}", "{User:admin Password:XXXX}"},
		{"a password=one\nb password=two", "a password=XXXX\nb password=XXXX"},
		{"password=abc token=def", "password=XXXX token=XXXX"},
		{"GET https://user:pw@host/x?q=1 failed", "GET https://XXXX@host/x?q=1 failed"},
		{"GET https://host:443/a@b failed", "GET https://host:443/a@b failed"},
		{"https://host/x?access_token=abc&b=1", "https://host/x?access_token=XXXX"},
		{"compass=north description: fine", "compass=north description: fine"},
		{"x := password", "x := password"},
		{"größe=1 passwört=ok", "größe=1 passwört=ok"},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, telemetry.RedactText(tt.in), "%q", tt.in)
	}
}

// TestRedactTextProperties: any text is survived, and a planted value after a
// secret name never comes through, whatever surrounds it.
func TestRedactTextProperties(t *testing.T) {
	const planted = "pl4nted"
	rapid.Check(t, func(t *rapid.T) {
		telemetry.RedactText(rapid.String().Draw(t, "any"))

		around := rapid.StringMatching(`[a-z0-9 =:,.{}\[\]()"'/@\n-]{0,12}`)
		name := rapid.SampledFrom([]string{"password", "access_token", "API-Key", `"secret"`}).Draw(t, "name")
		separator := rapid.SampledFrom([]string{"=", ":", ": ", " = "}).Draw(t, "separator")
		before := around.Draw(t, "before")
		text := before + " " + name + separator + planted + around.Draw(t, "after")
		require.NotContains(t, telemetry.RedactText(text), planted)
	})
}
