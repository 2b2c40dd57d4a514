// SPDX-License-Identifier: Apache-2.0

package redfishagent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/secret"
)

// counted is a sink that counts what it is given.
type counted struct{ bytes int }

func (c *counted) JSON(_ string, v any) error {
	raw, err := json.Marshal(v)
	c.bytes += len(raw)
	return err
}

func (c *counted) Text(_, content string) error {
	c.bytes += len(content)
	return nil
}

// TestSurveyIsBounded examines a device that shows more than an agent may keep.
func TestSurveyIsBounded(t *testing.T) {
	const size, chassis, most = 1 << 10, 128, 32 << 10
	var reads atomic.Int64
	body := func(uri string, members string) string {
		return fmt.Sprintf(`{"@odata.id":%q,%s}`, uri, members)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch path := strings.TrimSuffix(r.URL.Path, "/"); path {
		case "/redfish/v1":
			_, _ = w.Write([]byte(body(path, `"Chassis":{"@odata.id":"/redfish/v1/Chassis"}`)))
		case "/redfish/v1/Chassis":
			var list []string
			for i := range chassis {
				list = append(list, fmt.Sprintf(`{"@odata.id":"/redfish/v1/Chassis/%d"}`, i))
			}
			_, _ = w.Write([]byte(body(path, `"Members":[`+strings.Join(list, ",")+`]`)))
		default:
			reads.Add(1)
			_, _ = w.Write([]byte(body(path, `"Oem":"`+strings.Repeat("x", size)+`"`)))
		}
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	defer srv.Close()
	host, text, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	port, err := strconv.ParseUint(text, 10, 16)
	require.NoError(t, err)
	profile, ok := redfish.LookupProfile("compute_gb200_nvidia")
	require.True(t, ok)
	pool := redfish.NewPool(redfish.PoolOptions{})
	defer pool.Close()
	c, err := redfish.New(
		redfish.Endpoint{Address: host, Port: uint16(port), Username: "root", Password: secret.New("pl4nted")},
		redfish.Options{Profile: profile, Guard: redfish.Unguarded{}, Pool: pool},
	)
	require.NoError(t, err)
	defer c.Close()
	var kept counted
	failed := map[string]error{}
	for _, one := range collectors(c, most) {
		if err := one.Collect(context.Background(), &kept); err != nil {
			failed[one.Name()] = err
		}
	}
	require.ErrorIs(t, failed["chassis"], errTooMuch)
	require.LessOrEqual(t, kept.bytes, most+most/4)
	require.LessOrEqual(t, reads.Load(), int64(most/size+1), "nothing more is asked for")
	require.NotErrorIs(t, failed["tasks"], errTooMuch)
}
