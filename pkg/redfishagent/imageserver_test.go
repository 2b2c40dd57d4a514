// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// An image is served where the device was told to fetch it, however the operator has
// written the URL, and nowhere once it is withdrawn.
func TestImagesAreServedWhereTheyAreOffered(t *testing.T) {
	for _, base := range []string{"http://h", "http://h/", "https://h:8443/images", "https://h:8443/images/", "http://h/a//"} {
		t.Run(base, func(t *testing.T) {
			s, err := NewImageServer(base)
			require.NoError(t, err)
			file := filepath.Join(t.TempDir(), "bmc_1.bin")
			require.NoError(t, os.WriteFile(file, []byte("image"), 0o600))
			f, err := os.Open(file)
			require.NoError(t, err)
			uri, withdraw := s.publish(&image{File: f, name: "bmc_1.bin", size: 5})
			get := func() (int, string) {
				u, err := url.Parse(uri)
				require.NoError(t, err)
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, u.RequestURI(), http.NoBody))
				body, err := io.ReadAll(w.Body)
				require.NoError(t, err)
				return w.Code, string(body)
			}
			status, body := get()
			require.Equal(t, http.StatusOK, status, uri)
			require.Equal(t, "image", body)
			withdraw()
			status, _ = get()
			require.Equal(t, http.StatusNotFound, status)
		})
	}
}
