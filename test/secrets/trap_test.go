// SPDX-License-Identifier: Apache-2.0

package secrets_test

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/test/secrets"
)

// TestTrap: the trap snaps in every form.
func TestTrap(t *testing.T) {
	var tr secrets.Trap
	secret := tr.Plant("password", "admin", `p&ss/w+rd "x"`)
	for _, content := range []string{
		secret, `{"password":"p\u0026ss/w+rd \"x\""}`, "p=" + url.QueryEscape(secret), "https://admin:" + url.PathEscape(secret) + "@host",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("admin:"+secret)), fmt.Sprintf("%x", secret), fmt.Sprint([]byte(secret)),
	} {
		tr.Found = nil
		tr.Look("here", []byte("before "+content+" after"))
		require.NotEmpty(t, tr.Found, content)
	}
	tr.Found = nil
	tr.Look("here", []byte("p&ss"))
	require.Empty(t, tr.Found)
}
