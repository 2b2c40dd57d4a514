// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func TestActions(t *testing.T) {
	waves := func(state rackbusv1.RolloutState) *rackbusv1.Job {
		j := update("j1", "", running, 10)
		j.Rollout = &rackbusv1.Rollout{Plan: &rackbusv1.RolloutPlan{WaveSize: 1}, State: state}
		return j
	}
	for _, tt := range []struct {
		word string
		job  *rackbusv1.Job
		call string
		next string
	}{
		{"cancel", update("j1", "tray-1", running, 10), `CancelJob j1 CANCEL_MODE_GRACEFUL "wrong image"`, "j1"},
		{"terminate", update("j1", "tray-1", stopping, 10), `CancelJob j1 CANCEL_MODE_TERMINATE "wrong image"`, "j1"},
		{"pause", waves(rackbusv1.RolloutState_ROLLOUT_STATE_RUNNING), `PauseRollout j1 "wrong image"`, "j1"},
		{"resume", waves(rackbusv1.RolloutState_ROLLOUT_STATE_HELD), `ResumeRollout j1`, "j1"},
		{"abort", waves(rackbusv1.RolloutState_ROLLOUT_STATE_PAUSING), `AbortRollout j1 "wrong image"`, "j1"},
		{"diagnose", update("j1", "tray-1", failed, 10), `StartNodeDiagnostics j1`, "diagnosis"},
	} {
		t.Run(tt.word, func(t *testing.T) {
			s := newSite(t)
			s.put(tt.job)
			form, cookies := s.confirm("/jobs/j1/do/" + tt.word)
			require.Empty(t, s.calls, "asking does nothing")
			form.Set("reason", "wrong image")
			resp, body := s.post("/jobs/j1/do/"+tt.word, form, cookies)
			require.Equal(t, http.StatusSeeOther, resp.StatusCode, body)
			require.Equal(t, "/jobs/"+tt.next+"?done="+tt.word, resp.Header.Get("Location"))
			require.Equal(t, []string{tt.call}, s.calls)
			a, _ := findAction(tt.word)
			require.Contains(t, s.page("/jobs/j1?done="+tt.word), a.Notice)
		})
	}
	require.Len(t, actions(), 6)
}

func TestViewersAreOfferedNothingAndRefused(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", running, 10))
	form, cookies := s.confirm("/jobs/j1/do/cancel")
	s.role = rackbusv1.Role_ROLE_VIEWER
	require.NotContains(t, s.page("/jobs/j1"), "/do/")
	for _, a := range actions() {
		resp, body := s.get("/jobs/j1/do/" + a.Word)
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		require.Contains(t, body, "yours is viewer")
		resp, body = s.post("/jobs/j1/do/"+a.Word, form, cookies)
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		require.Contains(t, body, "needs the role operator", "the API itself must refuse")
	}
	require.Empty(t, s.calls)
}

func TestForeignFormsAreRefused(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", running, 10))
	form, cookies := s.confirm("/jobs/j1/do/cancel")
	other, _ := s.confirm("/jobs/j1/do/cancel")
	for name, send := range map[string]func() (answer, string){
		"no token":      func() (answer, string) { return s.post("/jobs/j1/do/cancel", nil, cookies) },
		"no cookie":     func() (answer, string) { return s.post("/jobs/j1/do/cancel", form, nil) },
		"another token": func() (answer, string) { return s.post("/jobs/j1/do/cancel", other, cookies) },
		"empty ones": func() (answer, string) {
			return s.post("/jobs/j1/do/cancel", url.Values{"token": {""}}, []*http.Cookie{{Name: tokenName, Value: ""}})
		},
		"another site": func() (answer, string) {
			return s.post("/jobs/j1/do/cancel", form, cookies, "Sec-Fetch-Site", "cross-site")
		},
		"another origin": func() (answer, string) {
			return s.post("/jobs/j1/do/cancel", form, cookies, "Origin", "https://evil.example")
		},
		"another host of the domain": func() (answer, string) {
			return s.post("/jobs/j1/do/cancel", form, cookies, "Sec-Fetch-Site", "same-site")
		},
	} {
		resp, _ := send()
		require.Equal(t, http.StatusForbidden, resp.StatusCode, name)
	}
	require.Empty(t, s.calls)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+s.live("/jobs"), nil)
	require.NoError(t, err)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, _ := s.do(r)
	require.Equal(t, http.StatusForbidden, resp.StatusCode, "another site must not take the places of streams")
	resp, _ = s.get("/jobs/j1/do/explode")
	require.Equal(t, http.StatusNotFound, resp.StatusCode)

	resp, _ = s.post("/jobs/j1/do/cancel", form, cookies, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Len(t, s.calls, 1)
}

func TestTheTokenIsOfThisHostOverTLS(t *testing.T) {
	s := newSite(t, func(o *Options) { o.Secure = true })
	s.put(update("j1", "tray-1", running, 10))
	_, cookies := s.confirm("/jobs/j1/do/cancel")
	require.Len(t, cookies, 1)
	c := cookies[0]
	require.Equal(t, "__Host-rackbus_form", c.Name)
	require.True(t, c.Secure && c.HttpOnly && c.SameSite == http.SameSiteStrictMode && c.Path == "/" && c.Domain == "")
}

func TestRefusalsOfTheAPIAreTold(t *testing.T) {
	s := newSite(t)
	s.put(update("j1", "tray-1", running, 10))
	form, cookies := s.confirm("/jobs/j1/do/cancel")
	s.fault = status.Error(codes.FailedPrecondition, "job j1 has ended already (completed)")
	resp, body := s.post("/jobs/j1/do/cancel", form, cookies)
	require.Equal(t, http.StatusConflict, resp.StatusCode)
	require.Contains(t, body, "has ended already")
	require.Contains(t, body, `href="/jobs/j1"`)

	s.put(update("j1", "tray-1", completed, 100))
	require.Contains(t, s.page("/jobs/j1/do/cancel"), "cannot be done")
}
