// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/config"
)

// TestCertificates has a server whose certificate only some trust.
func TestCertificates(t *testing.T) {
	t.Parallel()
	body := content(1, 1000)
	s := &server{t: t, body: body, etag: `"one"`}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)

	stranger := newRig(t)
	_, err := stranger.fetch(s.URL + "/file.bin")
	require.ErrorContains(t, err, "certificate is not accepted")
	require.NotContains(t, err.Error(), "tried", "no other try would help")

	roots := filepath.Join(t.TempDir(), "roots.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(roots, block, 0o600))
	c := config.Default()
	c.Artifacts.TLSCA = roots
	c.Artifacts.Addresses = []string{"127.0.0.1"}
	o, err := FromConfig(c, nil)
	require.NoError(t, err)
	require.Equal(t, []string{c.Workflows.FirmwareDir}, o.Policy.FileDirs)
	friend := newRig(t, func(into *Options) { *into = o })
	_, err = friend.fetch(s.URL+"/file.bin", want(body))
	require.NoError(t, err)
	friend.requireFile(body)

	require.NoError(t, os.WriteFile(roots, []byte("none"), 0o600))
	_, err = FromConfig(c, nil)
	require.ErrorContains(t, err, "no certificate")
}
