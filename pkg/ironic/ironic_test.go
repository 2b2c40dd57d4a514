// SPDX-License-Identifier: Apache-2.0

package ironic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rackbus/rackbus/pkg/diagnostics"
	"github.com/rackbus/rackbus/pkg/ironic"
	"github.com/rackbus/rackbus/pkg/ironic/ironictest"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object = ironictest.Object

// rig is a fake with one node, and how it is reached.
type rig struct {
	*ironictest.Fake
	t       *testing.T
	options ironic.Options
}

func newRig(t *testing.T, members object) *rig {
	t.Helper()
	f := ironictest.Start(t)
	f.AddNode("r1-n1", members)
	roots, err := ironic.Roots(f.CAFile())
	require.NoError(t, err)
	return &rig{f, t, ironic.Options{Endpoint: f.URL(), Roots: roots, NodeName: "{rack_id}-{node_id}"}}
}

// account has the fake ask for credentials, and gives them.
func (r *rig) account(auth ironic.Auth, password string, more ...string) {
	r.SetAuth(string(auth))
	lines := append([]string{"# from openrc", "export OS_USERNAME=" + ironictest.User, `OS_PASSWORD="` + password + `"`}, more...)
	r.options.Auth = auth
	r.options.Environment = func() (secret.Value, error) { return secret.New(strings.Join(lines, "\n")), nil }
}

// files are what collectors gave.
type files map[string]string

func (f files) JSON(name string, v any) error {
	raw, err := json.Marshal(v)
	f[name] = string(raw)
	return err
}

func (f files) Text(name, text string) error {
	f[name] = text
	return nil
}

// collect runs the collectors, and gives the error of each.
func (r *rig) collect() (files, map[string]error) {
	r.t.Helper()
	out, failed := files{}, map[string]error{}
	for _, c := range ironic.Collectors(r.options, ironic.Target{RackID: "r1", NodeID: "n1", BMCAddress: "10.0.0.7"}) {
		if err := c.Collect(r.t.Context(), out); err != nil {
			failed[c.Name()] = err
		}
	}
	for name, text := range out {
		require.NotContains(r.t, text, ironictest.Password, name)
	}
	for _, err := range failed {
		require.NotContains(r.t, err.Error(), ironictest.Password)
	}
	return out, failed
}

func (r *rig) state() diagnostics.Collector {
	return ironic.Collectors(r.options, ironic.Target{RackID: "r1", NodeID: "n1", BMCAddress: "10.0.0.7"})[0]
}

// everything gives a node all that can be read of it.
func (r *rig) everything() {
	r.Set("r1-n1", "traits", object{"traits": []any{"CUSTOM_GB200"}})
	r.Set("r1-n1", "ports/detail", object{"ports": []any{object{"address": "aa:bb"}}})
	r.Set("r1-n1", "allocation", object{"name": "alloc"})
	r.Set("r1-n1", "history", object{"history": []any{object{"event": "an old error", "created_at": "2026-01-01T00:00:00+00:00", "event_type": "cleaning"}}})
	r.Set("r1-n1", "inventory", object{"inventory": object{"memory": 512}})
	r.Set("r1-n1", "validate", object{"power": object{"result": true}})
	r.Set("", "conductors", object{"conductors": []any{object{"hostname": "conductor-1", "alive": true}}})
}

// TestCollects reads all there is with every way in, and asks for the newest version
// that both sides know.
func TestCollects(t *testing.T) {
	for name, enter := range map[string]func(*rig){
		"none":       func(*rig) {},
		"with /v1/":  func(r *rig) { r.options.Endpoint += "/v1/" },
		"http_basic": func(r *rig) { r.account(ironic.AuthHTTPBasic, ironictest.Password) },
		"keystone": func(r *rig) {
			r.account(ironic.AuthKeystone, ironictest.Password, "OS_AUTH_URL="+r.KeystoneURL(), "OS_PROJECT_NAME=service")
		},
		"keystone, system scope": func(r *rig) {
			r.account(ironic.AuthKeystone, ironictest.Password, "OS_AUTH_URL="+strings.TrimSuffix(r.KeystoneURL(), "/v3"), "OS_SYSTEM_SCOPE=all")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, object{"driver_info": object{
				"redfish_address": "https://10.0.0.7", "redfish_username": "root", "redfish_password": "pw-of-node", "snmp_priv_key": "k-of-node",
			}, "instance_info": object{"configdrive": object{"user_data": "x-of-user"}, "big": json.Number("12345678901234567890")},
			})
			r.everything()
			enter(r)
			if r.options.Environment != nil {
				r.Change("r1-n1", object{"extra": object{"note": "we sent " + ironictest.Password, "and": "a-token-of-keystone"}})
			}
			got, failed := r.collect()
			require.Empty(t, failed)
			require.ElementsMatch(t, []string{
				"ironic/node.json", "ironic/problems.json", "ironic/history.json", "ironic/traits.json", "ironic/ports.json",
				"ironic/allocation.json", "ironic/inventory.json", "ironic/validate.json", "ironic/conductors.json",
			}, slices.Collect(maps.Keys(got)))
			require.Contains(t, got["ironic/traits.json"], "CUSTOM_GB200")
			require.Equal(t, r.options.Auth == ironic.AuthHTTPBasic, strings.Contains(got["ironic/node.json"], "a-token-of-keystone"))
			require.JSONEq(t, `{"problems":[]}`, got["ironic/problems.json"])
			require.NotContains(t, got["ironic/node.json"], "k-of-node")
			require.NotContains(t, got["ironic/node.json"], "x-of-user")
			require.Contains(t, got["ironic/node.json"], "12345678901234567890")
			for _, q := range r.Requests() {
				if q.Path != "/v1/" && strings.HasPrefix(q.Path, "/v1") {
					require.Equal(t, "1.81", q.Version, q.Path)
					require.Equal(t, http.MethodGet, q.Method)
				}
			}

			// What a bundle keeps has no password of the node either.
			var content bytes.Buffer
			b := diagnostics.NewBundle(&content, diagnostics.Limits{File: 1 << 20, Total: 1 << 20}, time.Now())
			require.NoError(t, r.state().Collect(t.Context(), b.Sink("ironic")))
			kept, err := json.Marshal(b.Evidence())
			require.NoError(t, err)
			require.NotContains(t, string(kept), "pw-of-node")
			require.NotContains(t, string(kept), ironictest.Password)
			require.Contains(t, string(kept), "10.0.0.7")
		})
	}
}

// TestOldIronic leaves out what a version does not have yet.
func TestOldIronic(t *testing.T) {
	r := newRig(t, nil)
	r.everything()
	r.SetMaximum(50)
	got, failed := r.collect()
	require.Empty(t, failed)
	require.NotContains(t, got, "ironic/history.json")
	require.NotContains(t, got, "ironic/inventory.json")
	require.Contains(t, got, "ironic/conductors.json")
	for _, q := range r.Requests()[1:] {
		if q.Version != "" {
			require.Equal(t, "1.50", q.Version)
		}
	}
}

// TestWhatGoesWrong has the API refuse, delay and garble.
func TestWhatGoesWrong(t *testing.T) {
	status := func(code int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "r1-n1") {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	for name, c := range map[string]struct {
		do   func(*rig)
		want string
	}{
		"no such node": {func(r *rig) { r.options.NodeName = "{node_id}" }, `ironic knows no node "n1"`},
		"wrong password": {func(r *rig) {
			r.account(ironic.AuthHTTPBasic, ironictest.Password+"x")
		}, "HTTP 401: The request you have made requires authentication."},
		"wrong password for Keystone": {func(r *rig) {
			r.account(ironic.AuthKeystone, ironictest.Password+"x", "OS_AUTH_URL="+r.KeystoneURL(), "OS_PROJECT_NAME=service")
		}, "log in to Keystone: POST v3/auth/tokens: HTTP 401: The request you have made"},
		"another machine": {func(r *rig) {
			r.Change("r1-n1", object{"driver_info": object{"redfish_address": "https://10.0.0.8:443"}})
		}, "is another one: its redfish_address is 10.0.0.8"},
		"unknown authority": {func(r *rig) { r.options.Roots = nil }, "certificate"},
		"maintenance page":  {func(r *rig) { r.Answer(status(503, "<html>down</html>")) }, "HTTP 503: <html>down</html>"},
		"no JSON":           {func(r *rig) { r.Answer(status(200, "<html>")) }, "cannot be read"},
		"cut off":           {func(r *rig) { r.Answer(status(200, `{"uuid":"1"`)) }, "cannot be read"},
		"no node":           {func(r *rig) { r.Answer(status(200, `{"uuid":"1"}`)) }, "the answer is no node"},
		"a list":            {func(r *rig) { r.Answer(status(200, `[1]`)) }, "the answer is no node"},
		"endless": {func(r *rig) {
			r.Answer(status(200, `{"uuid":"`+strings.Repeat("x", 9<<20)+`"}`))
		}, "larger than 8 MiB"},
		"password in a number": {func(r *rig) {
			r.account(ironic.AuthHTTPBasic, "77")
			r.SetAuth("none")
			r.Answer(status(200, `{"uuid":"1","provision_state":"active","x":1771}`))
		}, "outside of a text"},
		"redirect": {func(r *rig) {
			r.Answer(func(w http.ResponseWriter, q *http.Request) bool {
				http.Redirect(w, q, "https://192.0.2.1/", http.StatusFound)
				return true
			})
		}, "HTTP 302"},
		"something else": {func(r *rig) {
			r.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = w.Write([]byte(`{}`))
				return true
			})
		}, "this is not Ironic"},
		"slow": {func(r *rig) {
			r.options.Request = time.Second
			never := make(chan struct{})
			r.t.Cleanup(func() { close(never) })
			r.Answer(func(http.ResponseWriter, *http.Request) bool {
				<-never // an answer to a client that is about to give up might still get there
				return true
			})
		}, "no answer in time"},
		"nothing listens": {func(r *rig) { r.options.Endpoint = "https://127.0.0.1:1" }, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c.do(r)
			got, failed := r.collect()
			require.ErrorContains(t, failed["ironic"], c.want)
			require.NotContains(t, got, "ironic/node.json")
			require.NotContains(t, failed["ironic"].Error(), "Basic ")
		})
	}
}

// TestPartsFailAlone keeps the node when what says more about it cannot be read, and
// tells it.
func TestPartsFailAlone(t *testing.T) {
	r := newRig(t, nil)
	r.everything()
	r.Answer(func(w http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, "/ports/detail") {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	got, failed := r.collect()
	require.Len(t, failed, 1)
	require.ErrorContains(t, failed["ironic_details"], "ports/detail: HTTP 500")
	require.Contains(t, got, "ironic/conductors.json")
	require.Contains(t, got, "ironic/node.json")
}

// TestCallerGivesUp ends at once with the caller's reason.
func TestCallerGivesUp(t *testing.T) {
	r := newRig(t, nil)
	asked, never := make(chan struct{}, 1), make(chan struct{})
	t.Cleanup(func() { close(never) })
	r.Answer(func(http.ResponseWriter, *http.Request) bool {
		asked <- struct{}{}
		<-never // an answer to a client that is about to give up might still get there
		return true
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	require.ErrorIs(t, r.state().Collect(ctx, files{}), context.Canceled)
}

// TestProvisionStates examines nodes at rest only.
func TestProvisionStates(t *testing.T) {
	r := newRig(t, nil)
	for state, rests := range map[string]bool{
		"active": true, "available": true, "manageable": true, "enroll": true, "error": true, "rescue": true, "inspect failed": true,
		"clean failed": true, "deploy failed": true, "clean hold": true,
		"deploying": false, "wait call-back": false, "cleaning": false, "clean wait": false, "inspecting": false, "inspect wait": false,
		"deleting": false, "verifying": false, "adopting": false, "servicing": false, "a new one": false,
	} {
		r.Change("r1-n1", object{"provision_state": state})
		err := r.state().(diagnostics.Preconditioner).Precondition(t.Context())
		var refused *diagnostics.StateError
		require.Equal(t, !rests, errors.As(err, &refused), "%s: %v", state, err)
		if !rests {
			require.Equal(t, state, refused.State)
		} else {
			require.NoError(t, err)
		}
	}
}

// TestFingerprint tells what must not change.
func TestFingerprint(t *testing.T) {
	r := newRig(t, nil)
	state := r.state().(diagnostics.Fingerprinter)
	before, err := state.Fingerprint(t.Context())
	require.NoError(t, err)
	same, err := state.Fingerprint(t.Context())
	require.NoError(t, err)
	require.Empty(t, before.Changes(same))
	for key, value := range map[string]string{
		"provision_state": "deploying", "power_state": "power off", "target_power_state": "power on", "driver": "ipmi", "instance_uuid": "x",
	} {
		r := newRig(t, object{key: value})
		after, err := r.state().(diagnostics.Fingerprinter).Fingerprint(t.Context())
		require.NoError(t, err)
		require.Len(t, before.Changes(after), 1, key)
	}
}

// TestProblems recognises problems in Ironic's words.
func TestProblems(t *testing.T) {
	own := object{"deploy_kernel": "http://images/arm64/boot.kernel"}
	for name, c := range map[string]struct {
		members object
		history string
		want    job.FailureCode
		current bool
	}{
		"image is not there": {object{
			"provision_state": "inspect failed",
			"last_error": "Failed to inspect hardware. Reason: Validation of image href http://172.22.0.1/images/ironic-python-agent.initramfs " +
				"failed, reason: Got HTTP code 404 instead of 200 in response to HEAD request.",
		}, "", job.FailureIronicImageNotFound, true},
		"parameter is missing": {object{
			"last_error": "Cannot validate PXE bootloader. Some parameters were missing in node's driver_info. Missing are: ['deploy_kernel']",
		}, "", job.FailureIronicImageNotFound, true},
		"the node's own image": {object{
			"driver_info": own, "last_error": "Image http://images/arm64/boot.kernel could not be found.",
		}, "", job.FailureIronicImageNotFound, true},
		"image of a tenant": {object{
			"driver_info": own, "last_error": "Validation of image href http://images/ubuntu.qcow2 failed, reason: Got HTTP code 404 instead of 200",
		}, "", "", false},
		"image is slow": {object{"last_error": "Timeout reading http://images/ironic-python-agent.kernel"}, "", "", false},
		"driver": {object{
			"driver": "redfish", "last_error": "Failed to power cycle: Driver redfish does not support vendor_passthru (disabled or not implemented).",
		}, "", job.FailureIronicDriverMismatch, true},
		"driver is right": {object{
			"driver": "ipmi", "last_error": "Driver ipmi does not support power cycle",
		}, "", "", false},
		"past": {object{"driver": "redfish"}, "Driver redfish does not support vendor_passthru", job.FailureIronicDriverMismatch, false},
		"told twice": {object{
			"driver": "redfish", "last_error": "Driver redfish does not support vendor_passthru",
		}, "Driver redfish does not support vendor_passthru", job.FailureIronicDriverMismatch, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.members)
			if c.history != "" {
				r.Set("r1-n1", "history", object{"history": []any{object{"event": c.history, "created_at": "2026-01-01T00:00:00+00:00"}}})
			}
			got, failed := r.collect()
			require.Empty(t, failed)
			var doc struct {
				Problems []struct {
					Code    job.FailureCode
					Current bool
				}
			}
			require.NoError(t, json.Unmarshal([]byte(got["ironic/problems.json"]), &doc))
			if c.want == "" {
				require.Empty(t, doc.Problems)
				return
			}
			require.Len(t, doc.Problems, 1)
			require.Equal(t, c.want, doc.Problems[0].Code)
			require.Equal(t, c.current, doc.Problems[0].Current)
		})
	}
}

// TestEnvironment refuses credentials that cannot be used, without showing any.
func TestEnvironment(t *testing.T) {
	for text, want := range map[string]string{
		"OS_PASSWORD hunter2":                       "line 1 is not NAME=value",
		"OS_USERNAME=a\nOS_PASWORD=hunter2":         "line 2: the variable is none of",
		"OS_USERNAME=a\n\n#x\nexport OS_PASSWORD=b": "",
	} {
		err := ironic.CheckEnvironment([]byte(text))
		if want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for name, lines := range map[string][]string{
		"OS_AUTH_URL not set":                      {"OS_PROJECT_NAME=x"},
		"OS_AUTH_URL is no https URL":              {"OS_AUTH_URL=http://keystone"},
		"OS_APPLICATION_CREDENTIAL_SECRET not set": {"OS_AUTH_URL=https://keystone", "OS_APPLICATION_CREDENTIAL_ID=1"},
	} {
		r := newRig(t, nil)
		r.account(ironic.AuthKeystone, ironictest.Password, lines...)
		_, failed := r.collect()
		require.ErrorContains(t, failed["ironic"], name)
	}
}
