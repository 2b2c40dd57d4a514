// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestActionID(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]ActionID{
		`"12"`:                                   "12",
		`12`:                                     "12",
		`{"action_id":"1"}`:                      "1",
		`{"id":2}`:                               "2",
		`{"Id":"3"}`:                             "3",
		`{"action-id":"4"}`:                      "4",
		`{"actionId":"5"}`:                       "5",
		`{"job_id":"6"}`:                         "6",
		`{"JobId":7}`:                            "7",
		`{"id":"","JobId":7}`:                    "7",
		`{"id":{},"job_id":"6"}`:                 "6",
		`{"@odata.id":"/nvue_v1/action/8"}`:      "8",
		`{"href":"/nvue_v1/action/9/"}`:          "9",
		`{"location":"https://x/action/10?a=/"}`: "10",
		`{"location":"11"}`:                      "11",
		`{}`:                                     "",
		`[]`:                                     "",
		`null`:                                   "",
		`{"other":1}`:                            "",
	} {
		require.Equal(t, want, actionID(json.RawMessage(body)), body)
	}
}

func TestActionVerdict(t *testing.T) {
	t.Parallel()
	policies := []ActionPolicy{StrictActions(), ImageActions(), FirmwareActions(), EvidenceActions()}
	const (
		run  = ActionRunning
		ok   = ActionSucceeded
		away = ActionHandedOff
		bad  = ActionFailed
	)
	for _, tt := range []struct {
		body string
		// strict, image, firmware, evidence
		want [4]ActionVerdict
		text string
	}{
		{`{"state":"action_success","percentage":100,"status":"done","detail":"","issue":[],"http-status":200}`, [4]ActionVerdict{ok, ok, ok, ok}, "done"},
		{`{"state":"ACTION_SUCCESS"}`, [4]ActionVerdict{ok, ok, ok, ok}, ""},
		{`{"state":"completed"}`, [4]ActionVerdict{ok, ok, ok, bad}, ""},
		{`{"state":"complete"}`, [4]ActionVerdict{ok, ok, ok, bad}, ""},
		{`{"state":"success"}`, [4]ActionVerdict{ok, ok, ok, bad}, ""},
		{`{"status":"action_success"}`, [4]ActionVerdict{ok, ok, ok, bad}, "action_success"},
		{`{"state":"action_running","detail":"writing"}`, [4]ActionVerdict{run, run, run, run}, "writing"},
		{`{"state":"start"}`, [4]ActionVerdict{run, run, run, run}, ""},
		{`{"state":"running"}`, [4]ActionVerdict{run, run, run, run}, ""},
		{`{"state":"inactive"}`, [4]ActionVerdict{run, run, run, run}, ""},
		{`{"state":"paused"}`, [4]ActionVerdict{run, run, bad, bad}, ""},
		{`{}`, [4]ActionVerdict{run, run, run, bad}, ""},
		{`[]`, [4]ActionVerdict{run, run, run, bad}, ""},
		{`{"status":"0 errors so far"}`, [4]ActionVerdict{run, run, bad, bad}, "0 errors so far"},

		{`{"state":"action_failed","detail":"no space"}`, [4]ActionVerdict{bad, bad, bad, bad}, "no space"},
		{`{"state":"action_failed","issue":["a",{"message":"b"},{"data":{"msg":"c"}}],"detail":"d"}`, [4]ActionVerdict{bad, bad, bad, bad}, "b; c"},
		{`{"state":"aborted"}`, [4]ActionVerdict{bad, bad, bad, bad}, ""},
		{`{"state":"verify_error"}`, [4]ActionVerdict{bad, bad, bad, bad}, ""},

		{`{"state":"action_error","issue":["x"]}`, [4]ActionVerdict{bad, bad, bad, bad}, "x"},
		{`{"state":"action_error","status":"s"}`, [4]ActionVerdict{bad, bad, bad, bad}, "s"},
		{`{"state":"action_error","percentage":100}`, [4]ActionVerdict{bad, ok, ok, bad}, ""},
		{`{"state":"action_error","percent":"100%"}`, [4]ActionVerdict{bad, ok, ok, bad}, ""},
		{`{"state":"action_error","PercentComplete":"100"}`, [4]ActionVerdict{bad, ok, ok, bad}, ""},
		{`{"state":"action_error","percentage":99}`, [4]ActionVerdict{bad, bad, bad, bad}, ""},
		{`{"state":"action_error","issue":["Nothing to uninstall"]}`, [4]ActionVerdict{bad, ok, bad, bad}, "Nothing to uninstall"},
		{`{"state":"action_error","issue":{"0":{"data":{"msg":"nothing to uninstall."}}}}`, [4]ActionVerdict{bad, ok, bad, bad}, "nothing to uninstall."},
		{`{"state":"action_error","detail":"Power Cycle in progress"}`, [4]ActionVerdict{bad, away, away, bad}, "Power Cycle in progress"},
		{`{"state":"action_error","status":"will REBOOT now"}`, [4]ActionVerdict{bad, away, away, bad}, "will REBOOT now"},
		{`{"state":"action_error","detail":"System is offline"}`, [4]ActionVerdict{bad, away, away, bad}, "System is offline"},
		{`{"state":"action_error","detail":"reboot","issue":["image is not signed"]}`, [4]ActionVerdict{bad, bad, bad, bad}, "image is not signed"},
		{`{"state":"action_error","issue":["Disconnecting from NVOS"]}`, [4]ActionVerdict{bad, away, away, bad}, "Disconnecting from NVOS"},
		{`{"state":"action_error","percent":100,"detail":"offline during reboot"}`, [4]ActionVerdict{bad, away, away, bad}, "offline during reboot"},

		{`{"state":"action_running","status":"Performing reboot"}`, [4]ActionVerdict{run, away, away, run}, "Performing reboot"},
		{`{"state":"action_running","detail":"a reboot follows"}`, [4]ActionVerdict{run, run, run, run}, "a reboot follows"},
		{`{"state":"action_running","detail":"Disconnecting from NVOS"}`, [4]ActionVerdict{run, away, away, run}, "Disconnecting from NVOS"},
		{`{"state":"running","status":"system is offline"}`, [4]ActionVerdict{run, away, away, run}, "system is offline"},
	} {
		for i, p := range policies {
			s := p.judge(json.RawMessage(tt.body))
			require.Equal(t, tt.want[i].String(), s.Verdict.String(), "policy %d: %s", i, tt.body)
			require.Equal(t, tt.text, s.Text(), tt.body)
		}
	}
	require.Equal(t, "vanished", ActionVanished.String())
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`{"percentage":42}`: 42, `{"percent":"7 %"}`: 7, `{"PercentComplete":"99.9"}`: 99, `{"percentage":1e9}`: 100,
		`{}`: -1, `{"percentage":"N/A"}`: -1, `{"percentage":-5}`: -1, `{"percentage":{}}`: -1, `{"percentage":"NaN"}`: -1,
	} {
		require.Equal(t, want, percent(asDocument(json.RawMessage(body))), body)
	}
}

func TestStartAction(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	f.on("POST /nvue_v1/system/image", reply{status: 201, body: `"5"`}, reply{body: `{}`}, reply{status: 409, body: `{"detail":"busy"}`}, reply{cut: true})
	id, err := c.StartAction(t.Context(), UninstallImage())
	require.NoError(t, err)
	require.Equal(t, ActionID("5"), id)
	_, err = c.StartAction(t.Context(), UninstallImage())
	require.ErrorIs(t, err, ErrBadResponse)
	require.True(t, OutcomeUnknown(err), "the switch took it")
	_, err = c.StartAction(t.Context(), UninstallImage())
	require.ErrorIs(t, err, ErrConflict)
	require.False(t, OutcomeUnknown(err))
	_, err = c.StartAction(t.Context(), UninstallImage())
	require.ErrorIs(t, err, ErrUnavailable)
	require.True(t, OutcomeUnknown(err))
	f.on("POST /nvue_v1/cluster/apps/nmx-controller", reply{body: `{}`})
	id, err = c.StartAction(t.Context(), StartApp(AppController))
	require.NoError(t, err)
	require.Empty(t, id)
}

func TestRunAction(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{Timing: Timing{ActionPoll: time.Millisecond}})
	f.on("POST /nvue_v1/cluster/apps/nmx-controller", reply{body: `{}`}, reply{body: `"5"`})
	s, err := c.RunAction(t.Context(), StartApp(AppController))
	require.NoError(t, err)
	require.Equal(t, ActionSucceeded, s.Verdict, "an action without id is done")
	f.on("GET /nvue_v1/action/5", reply{body: `{"state":"action_running"}`}, reply{body: `{"state":"action_failed","issue":["cluster is not enabled"]}`})
	_, err = c.RunAction(t.Context(), StartApp(AppController))
	require.ErrorIs(t, err, ErrActionFailed)
	e, _ := errors.AsType[*Error](err)
	require.Equal(t, "cluster is not enabled", e.Issue)
	f.on("POST /nvue_v1/cluster/apps/nmx-controller", reply{status: 503})
	_, err = c.RunAction(t.Context(), StartApp(AppController))
	require.ErrorIs(t, err, ErrUnavailable)
}

func TestAwaitAction(t *testing.T) {
	t.Parallel()
	const line = "GET /nvue_v1/action/a%2F1"
	running := reply{body: `{"state":"action_running","percentage":10}`}
	for _, tt := range []struct {
		name    string
		looks   []reply
		policy  ActionPolicy
		wait    ActionWait
		code    Code
		verdict ActionVerdict
		looked  int
		took    time.Duration
	}{
		{name: "done", looks: []reply{running, running, {body: `{"state":"action_success"}`}}, verdict: ActionSucceeded, looked: 3, took: 2 * time.Second},
		{name: "retried", looks: []reply{{status: 503}, {cut: true}, {body: `{"state":"action_success"}`}}, verdict: ActionSucceeded, looked: 3, took: 2 * time.Second},
		{name: "never", looks: []reply{running}, code: ErrTimeout, looked: 61, took: time.Minute},
		{name: "own wait", looks: []reply{running}, wait: ActionWait{Interval: 5 * time.Second, Limit: 20 * time.Second}, code: ErrTimeout, looked: 5, took: 20 * time.Second},
		{name: "failed at once", looks: []reply{{body: `{"state":"action_failed"}`}}, code: ErrActionFailed, verdict: ActionFailed, looked: 1},
		{name: "vanished", looks: []reply{running, {status: 404}}, code: ErrActionGone, verdict: ActionVanished, looked: 2, took: time.Second},
		{name: "handed off", policy: ImageActions(), looks: []reply{{body: `{"state":"action_running","detail":"disconnecting from nvos"}`}}, verdict: ActionHandedOff, looked: 1},
		{name: "401", looks: []reply{running, {status: 401}}, code: ErrUnauthenticated, looked: 2, took: time.Second},
		{name: "whatever HTTP says", looks: []reply{{status: 500}, {status: 404}, {body: `{"state":"action_success"}`}}, verdict: ActionSucceeded, looked: 3, took: 2 * time.Second,
			wait: ActionWait{Retry: func(err error) bool { return CodeOf(err) != ErrUnauthenticated }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, c := bubble(t, Options{})
				f.on(line, tt.looks...)
				if tt.policy.Succeeds == nil {
					tt.policy = StrictActions()
				}
				seen := 0
				tt.wait.Observe = func(ActionStatus) { seen++ }
				begun := time.Now()
				s, err := c.AwaitAction(t.Context(), "a/1", tt.policy, tt.wait)
				if tt.code == "" {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, tt.code)
				}
				require.Equal(t, tt.verdict, s.Verdict)
				require.Equal(t, tt.took, time.Since(begun))
				require.Equal(t, tt.looked, f.count(line))
				require.LessOrEqual(t, seen, tt.looked)
			})
		})
	}
}

func TestAwaitActionIsInterrupted(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	draining := errors.New("draining")
	f.on("GET /nvue_v1/action/1", reply{body: `{"state":"action_running","percentage":40}`})
	s, err := c.AwaitAction(ctx, "1", StrictActions(), ActionWait{
		Interval: patience, Limit: 3 * patience, Observe: func(ActionStatus) { cancel(draining) },
	})
	require.ErrorIs(t, err, ErrCanceled)
	require.ErrorIs(t, err, draining)
	require.Equal(t, 40, s.Percent)
}
