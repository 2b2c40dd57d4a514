// SPDX-License-Identifier: Apache-2.0

package exchange_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/internal/exchange"
)

// A closed server neither answers nor records what comes late.
func TestLateRequestsAreCut(t *testing.T) {
	var s exchange.Server
	s.Close()
	w := httptest.NewRecorder()
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		s.Serve(w, httptest.NewRequest(http.MethodGet, "/redfish/v1", nil), nil, nil)
	})
	require.Empty(t, w.Body.String())
}
