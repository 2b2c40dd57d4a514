// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
)

// amiBMC keeps flags like AMI's update service; deaf is how many changes it
// forgets.
type amiBMC struct {
	*bmc
	mu    sync.Mutex
	flags map[string]any
	deaf  int
}

func newAMI(t *testing.T) *amiBMC {
	a := &amiBMC{bmc: newPipeBMC(t), flags: map[string]any{"FRU": false, "SDR": true, "Network": false, "Vendor": "own", "SEL": true}}
	a.on("GET "+updateURI, func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		raw, _ := json.Marshal(map[string]any{"Oem": map[string]any{"AMIUpdateService": map[string]any{"PreserveConfiguration": a.flags}}})
		reply(200, string(raw), "ETag", `"17"`)(w, r)
	})
	a.on("PATCH "+updateURI, func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		var body struct {
			Oem struct {
				AMIUpdateService struct{ PreserveConfiguration map[string]any }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.Header.Get("If-Match") != "*" {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		if a.deaf--; a.deaf < 0 {
			a.flags = body.Oem.AMIUpdateService.PreserveConfiguration
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return a
}

func TestPreserveConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAMI(t)
		defer a.close()
		started := time.Now()
		require.NoError(t, a.client(lenovo, defaults).PreserveConfiguration(t.Context()))
		require.Equal(t, time.Second, time.Since(started))
		patches := a.requests("PATCH", updateURI)
		require.Len(t, patches, 1)
		require.JSONEq(t, `{"Oem":{"AMIUpdateService":{"@odata.type":"#AMIUpdateService.v1_0_0.AMIUpdateService","PreserveConfiguration":{
			"Syslog":true,"NTP":true,"Network":true,"Authentication":true,"EXTLOG":true,"FRU":true,"IPMI":true,"KVM":true,"REDFISH":true,
			"SEL":true,"SNMP":true,"SSH":true,"WEB":true,"SDR":false,"Vendor":"own"}}}}`, patches[0].body, "what is there is kept")
	})
}

func TestPreserveConfigurationIsReadBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAMI(t)
		defer a.close()
		a.deaf = 2
		started := time.Now()
		require.NoError(t, a.client(lenovo, defaults).PreserveConfiguration(t.Context()))
		require.Equal(t, 3*time.Second+2*10*time.Second, time.Since(started))

		a.deaf, a.flags = 100, map[string]any{"SDR": false, "WEB": true}
		before := len(a.requests("PATCH", updateURI))
		err := a.client(lenovo, defaults).PreserveConfiguration(t.Context())
		require.Equal(t, redfish.CodeInternal, redfish.CodeOf(err))
		require.ErrorContains(t, err, "Network")
		require.NotContains(t, err.Error(), "WEB")
		require.Len(t, a.requests("PATCH", updateURI), before+5)
	})
}

func TestPreserveConfigurationFaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAMI(t)
		defer a.close()
		c := a.client(lenovo, defaults)
		a.on("PATCH "+updateURI, reply(503, ""))
		err := c.PreserveConfiguration(t.Context())
		require.Equal(t, redfish.CodeInternal, redfish.CodeOf(err))
		require.Len(t, a.requests("PATCH", updateURI), 5)

		a.on("PATCH "+updateURI, reply(401, ""))
		require.True(t, asError(t, c.PreserveConfiguration(t.Context())).CredentialFault())
		require.Len(t, a.requests("PATCH", updateURI), 6)

		a.on("GET "+updateURI, ok(`{"Oem":{}}`))
		require.Equal(t, redfish.CodeFailedPrecondition, redfish.CodeOf(c.PreserveConfiguration(t.Context())))
		require.Len(t, a.requests("PATCH", updateURI), 6)

		for _, id := range redfish.NodeTypes() {
			keeps := profile(t, id).Keep != ""
			require.Equal(t, id == lenovo, keeps, id)
		}
		require.Equal(t, redfish.CodeInvalidArgument, redfish.CodeOf(a.client(gb300, defaults).PreserveConfiguration(t.Context())))
	})
}
