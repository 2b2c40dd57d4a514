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
	"time"

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

// recorded is a sink that keeps the documents.
type recorded map[string]string

func (r recorded) JSON(name string, v any) error {
	raw, err := json.Marshal(v)
	r[name] = string(raw)
	return err
}

func (r recorded) Text(name, content string) error {
	r[name] = content
	return nil
}

// surveyed is a device that answers as serve says.
func surveyed(t *testing.T, serve http.HandlerFunc) *redfish.Client {
	t.Helper()
	srv := httptest.NewUnstartedServer(serve)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	host, text, err := net.SplitHostPort(srv.Listener.Addr().String())
	require.NoError(t, err)
	port, err := strconv.ParseUint(text, 10, 16)
	require.NoError(t, err)
	profile, ok := redfish.LookupProfile("compute_gb200_nvidia")
	require.True(t, ok)
	pool := redfish.NewPool(redfish.PoolOptions{})
	t.Cleanup(pool.Close)
	c, err := redfish.New(
		redfish.Endpoint{Address: host, Port: uint16(port), Username: "root", Password: secret.New("pl4nted")},
		redfish.Options{Profile: profile, Guard: redfish.Unguarded{}, Pool: pool},
	)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestOneSlowLogCostsNoOther: a journal that does not end in time keeps neither the log
// before it nor the one behind it from the bundle, and says so.
func TestOneSlowLogCostsNoOther(t *testing.T) {
	t.Parallel()
	link := func(uri string) string { return fmt.Sprintf(`{"@odata.id":%q}`, uri) }
	log := func(uri string) string {
		return fmt.Sprintf(`{"@odata.id":%q,"Entries":%s}`, uri, link(uri+"/Entries"))
	}
	entries := func(id string) string {
		return fmt.Sprintf(`{"Members":[{"@odata.id":"/e/1","MessageId":%q,"Created":"2026-11-30T01:00:00Z"}]}`, id)
	}
	const root, journal = "/redfish/v1", "/redfish/v1/Managers/1/LogServices/Journal"
	tree := map[string]string{
		root:                             `{"Managers":` + link(root+"/Managers") + `}`,
		root + "/Managers":               `{"Members":[` + link(root+"/Managers/1") + `]}`,
		root + "/Managers/1":             `{"@odata.id":"/redfish/v1/Managers/1","LogServices":` + link(root+"/Managers/1/LogServices") + `}`,
		root + "/Managers/1/LogServices": `{"Members":[` + log(root+"/A") + `,` + log(journal) + `,` + log(root+"/Z") + `]}`,
		root + "/A/Entries":              entries("A.1.0.First"),
		root + "/Z/Entries":              entries("Z.1.0.Last"),
	}
	reached := func() {}
	c := surveyed(t, func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(r.URL.Path, "/")
		if path == journal+"/Entries" {
			reached()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(tree[path]))
	})
	kept := recorded{}
	for _, one := range collectors(&survey{c: c, most: maxBytes, logLimit: 2 * time.Second}) {
		if one.Name() == "event_logs" || one.Name() == "managers" {
			require.NoError(t, one.Collect(t.Context(), kept), one.Name())
		}
	}
	for _, part := range []string{"A.1.0.First", "Z.1.0.Last", "not read to its end within 2s"} {
		require.Contains(t, kept["logs/events.json"], part)
	}
	var managers struct {
		ReadAt time.Time `json:"read_at"`
	}
	require.NoError(t, json.Unmarshal([]byte(kept["managers.json"]), &managers))
	require.WithinDuration(t, time.Now(), managers.ReadAt, time.Minute, "to compare the device's clock with")
	require.NotContains(t, kept["logs/events.json"], "read_at")

	// A run that is cut keeps what it has.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reached = cancel
	cut := recorded{}
	for _, one := range collectors(&survey{c: c, most: maxBytes, logLimit: time.Hour}) {
		if one.Name() == "event_logs" {
			require.Error(t, one.Collect(ctx, cut))
		}
	}
	require.Contains(t, cut["logs/events.json"], "A.1.0.First")
}

// TestSurveyIsBounded examines a device that shows more than an agent may keep.
func TestSurveyIsBounded(t *testing.T) {
	const size, chassis, most = 1 << 10, 128, 32 << 10
	var reads atomic.Int64
	body := func(uri string, members string) string {
		return fmt.Sprintf(`{"@odata.id":%q,%s}`, uri, members)
	}
	c := surveyed(t, func(w http.ResponseWriter, r *http.Request) {
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
	})
	var kept counted
	failed := map[string]error{}
	for _, one := range collectors(&survey{c: c, most: most, logLimit: time.Minute}) {
		if err := one.Collect(context.Background(), &kept); err != nil {
			failed[one.Name()] = err
		}
	}
	require.ErrorIs(t, failed["chassis"], errTooMuch)
	require.LessOrEqual(t, kept.bytes, most+most/4)
	require.LessOrEqual(t, reads.Load(), int64(most/size+1), "nothing more is asked for")
	require.NotErrorIs(t, failed["tasks"], errTooMuch)
}

// TestWhatWasReadIsKept: sensors that were read before the time was over are in the
// bundle.
func TestWhatWasReadIsKept(t *testing.T) {
	t.Parallel()
	const root = "/redfish/v1"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tree := map[string]string{
		root:                          `{"Chassis":{"@odata.id":"/redfish/v1/Chassis"}}`,
		root + "/Chassis":             `{"Members":[{"@odata.id":"/redfish/v1/Chassis/1"}]}`,
		root + "/Chassis/1":           `{"Sensors":{"@odata.id":"/redfish/v1/Chassis/1/Sensors"}}`,
		root + "/Chassis/1/Sensors":   `{"Members":[{"@odata.id":"/redfish/v1/Chassis/1/Sensors/a"},{"@odata.id":"/redfish/v1/Chassis/1/Sensors/b"}]}`,
		root + "/Chassis/1/Sensors/a": `{"Name":"first"}`,
	}
	c := surveyed(t, func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimSuffix(r.URL.Path, "/")
		if strings.HasSuffix(path, "/b") {
			cancel()
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(tree[path]))
	})
	kept := recorded{}
	for _, one := range collectors(&survey{c: c, most: maxBytes, logLimit: time.Minute}) {
		if one.Name() == "sensors" {
			require.Error(t, one.Collect(ctx, kept))
		}
	}
	require.Contains(t, kept["sensors.json"], "first")
}
