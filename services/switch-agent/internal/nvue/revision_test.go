// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const noDiffBody = `{"9":{"state":"failed","transition":{"issue":{"0":{"data":{"message":"config apply executed with no config diff"}}}}}}`

const (
	postRevision    = "POST /nvue_v1/revision"
	getRevision     = "GET /nvue_v1/revision/9"
	patchRevision   = "PATCH /nvue_v1/revision/9"
	deleteRevision  = "DELETE /nvue_v1/revision/9"
	saveApplied     = "PATCH /nvue_v1/revision/applied"
	stageCluster    = "PATCH /nvue_v1/cluster?rev=9"
	stageCert       = "PATCH /nvue_v1/system/api?rev=9"
	applyBody       = `{"state":"apply","auto-prompt":{"ays":"ays_yes"}}`
	saveBody        = `{"state":"save","auto-prompt":{"ays":"ays_yes"}}`
	pendingRevision = `{"9":{"state":"pending"}}`
)

// obedient scripts a switch that takes a revision.
func obedient(f *fakeSwitch) {
	f.on(postRevision, reply{status: 201, body: pendingRevision})
	f.on(stageCluster, reply{body: `{}`})
	f.on(stageCert, reply{body: `{}`})
	f.on(patchRevision, reply{body: "this is not parsed"})
	f.on(getRevision, reply{body: `{"state":"apply"}`}, reply{body: `{"state":"applied"}`})
	f.on(saveApplied, reply{body: `{}`})
	f.on(deleteRevision, reply{body: `{}`})
}

func TestRevisionID(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]Revision{
		`"rev_7"`:                             "rev_7",
		`7`:                                   "7",
		`{"7":{"state":"pending"}}`:           "7",
		`{"a/b":{"transition":{}}}`:           "a/b",
		`{"revision-id":"7","x":1}`:           "7",
		`{"id":7}`:                            "7",
		`{"id":{"state":"pending"}}`:          "id",
		`{"1":{"state":""},"2":{"state":""}}`: "",
		`{"7":{"other":1}}`:                   "",
		`{}`:                                  "",
		`[]`:                                  "",
		`null`:                                "",
		`true`:                                "",
		``:                                    "",
	} {
		require.Equal(t, want, revisionID(json.RawMessage(body)), body)
	}
}

func TestRevisionVerdict(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		body    string
		verdict RevisionVerdict
		issue   string
		saved   bool
	}{
		{body: `{"state":"applied"}`, verdict: RevisionApplied},
		{body: `{"9":{"state":"applied"}}`, verdict: RevisionApplied},
		{body: `{"other":{"state":"applied"}}`, verdict: RevisionApplied},
		{body: `{"state":"applied_and_saved"}`, verdict: RevisionApplied, saved: true},
		{body: `{"state":"Applied-And-Saved"}`, verdict: RevisionApplied, saved: true},
		{body: `{"state":"saved"}`, verdict: RevisionApplied, saved: true},
		{body: `{"state":"applied","transition":{"issue":{"0":{"severity":"warning","message":"slow"}}}}`, verdict: RevisionApplied, issue: "slow"},
		{body: `{"state":"applied","transition":{"issue":"remark"}}`, verdict: RevisionApplied, issue: "remark"},
		{body: `{"state":"applied","transition":{"issue":[{"severity":"error","message":"bad"}]}}`, verdict: RevisionFailed, issue: "bad"},
		{body: noDiffBody, verdict: RevisionNoDiff, issue: "config apply executed with no config diff"},
		{body: `{"state":"failed","transition":{"issue":"Config apply executed with no config diff."}}`, verdict: RevisionNoDiff, issue: "Config apply executed with no config diff."},
		{body: `{"state":"apply","transition":{"issue":["x","config apply executed with no config diff"]}}`, verdict: RevisionNoDiff, issue: "x; config apply executed with no config diff"},
		{body: `{"state":"failed","message":"m"}`, verdict: RevisionFailed, issue: "m"},
		{body: `{"state":"error","transition":{"issue":{"10":{"message":"b"},"2":{"data":{"msg":"a"},"code":"c"}}}}`, verdict: RevisionFailed, issue: "a; b"},
		{body: `{"state":"invalid","transition":{"issue":{"0":["x",{"y":"z"}]}}}`, verdict: RevisionFailed, issue: "x; z"},
		{body: `{"state":"ays_fail"}`, verdict: RevisionFailed},
		{body: `{"state":"confirm"}`, verdict: RevisionFailed},
		{body: `{"state":"confirm_fail"}`, verdict: RevisionFailed},
		{body: `{"state":"verify_error"}`, verdict: RevisionFailed},
		{body: `{"state":"ays_no"}`, verdict: RevisionFailed},
		{body: `{"state":"pending"}`}, {body: `{"state":"apply"}`}, {body: `{"state":"ays"}`}, {body: `{"state":"ready"}`},
		{body: `{"state":"save"}`}, {body: `{"state":7}`}, {body: `{}`}, {body: `[]`}, {body: `null`},
		{body: `{"9":null}`}, {body: `{"9":{"state":{"state":"applied"}}}`},
	} {
		s := judgeRevision("9", json.RawMessage(tt.body))
		require.Equal(t, tt.verdict, s.Verdict, tt.body)
		require.Equal(t, tt.issue, s.Issue, tt.body)
		require.Equal(t, tt.saved, s.Saved, tt.body)
	}
}

func TestChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := bubble(t, Options{})
		obedient(f)
		out, err := c.Change(t.Context(), SetClusterState(true), SetAPICertificate("id"))
		require.NoError(t, err)
		require.Equal(t, Outcome{Revision: "9", Changed: true, Saved: true}, out)
		var got [][2]string
		for _, s := range f.requests() {
			got = append(got, [2]string{s.line, s.body})
		}
		require.Equal(t, [][2]string{
			{postRevision, `{}`}, {stageCluster, `{"state":"enabled"}`}, {stageCert, `{"certificate":"id"}`},
			{patchRevision, applyBody}, {getRevision, ""}, {getRevision, ""}, {saveApplied, saveBody},
		}, got)
	})
}

func TestRevisionIsEncoded(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	f.on(postRevision, reply{body: `"a&b/c"`})
	f.on("PATCH /nvue_v1/cluster?rev=a%26b%2Fc", reply{status: 400})
	f.on("DELETE /nvue_v1/revision/a%26b%2Fc", reply{})
	_, err := c.Change(t.Context(), SetClusterState(true))
	require.ErrorIs(t, err, ErrInternal)
	require.Equal(t, 1, f.count("DELETE /nvue_v1/revision/a%26b%2Fc"))
}

func TestNoDiffIsNotSaved(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	obedient(f)
	f.on(getRevision, reply{body: noDiffBody})
	out, err := c.Change(t.Context(), SetClusterState(true))
	require.NoError(t, err)
	require.Equal(t, Outcome{Revision: "9"}, out)
	require.Zero(t, f.count(saveApplied))
	require.Zero(t, f.count(deleteRevision))
}

// J1: the switch saves on its own and says so.
func TestJ1AppliedAndSaved(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	obedient(f)
	f.on(getRevision, reply{body: `{"9":{"state":"applied_and_saved"}}`})
	out, err := c.Change(t.Context(), SetClusterState(true))
	require.NoError(t, err)
	require.Equal(t, Outcome{Revision: "9", Changed: true, Saved: true}, out)
	require.Equal(t, 1, f.count(getRevision), "one poll")
	require.Zero(t, f.count(saveApplied), "nothing is left to save")
}

// J2: the application is accepted and fails.
func TestJ2AcceptedThenInvalid(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{})
	obedient(f)
	f.on(getRevision, reply{body: `{"state":"invalid","transition":{"issue":{"0":{"message":"certificate id is unknown"}}}}`})
	_, err := c.Change(t.Context(), SetAPICertificate("id"))
	require.ErrorIs(t, err, ErrRevisionFailed)
	e, _ := errors.AsType[*Error](err)
	require.Equal(t, "certificate id is unknown", e.Issue)
	require.Contains(t, err.Error(), `"invalid"`)
	require.Equal(t, 1, f.count(deleteRevision))
}

// J4: whoever takes over looks at the switch: what was staged and never applied
// is applied, what was applied and never saved is saved.
func TestJ4FinishRevision(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		looks []reply
		want  Outcome
		is    error
		lines []string
	}{
		{
			name:  "killed between staging and applying",
			looks: []reply{{body: pendingRevision}, {body: `{"state":"applied"}`}},
			want:  Outcome{Revision: "9", Changed: true, Saved: true},
			lines: []string{getRevision, patchRevision, getRevision, saveApplied},
		},
		{
			name:  "killed while applying",
			looks: []reply{{body: `{"state":"apply"}`}, {body: `{"state":"applied"}`}},
			want:  Outcome{Revision: "9", Changed: true, Saved: true},
			lines: []string{getRevision, getRevision, saveApplied},
		},
		{
			name:  "killed before saving",
			looks: []reply{{body: `{"state":"applied"}`}},
			want:  Outcome{Revision: "9", Changed: true, Saved: true},
			lines: []string{getRevision, getRevision, saveApplied},
		},
		{
			name: "in force before", looks: []reply{{body: noDiffBody}}, want: Outcome{Revision: "9"},
			lines: []string{getRevision, getRevision},
		},
		{
			name: "failed meanwhile", looks: []reply{{body: `{"state":"failed"}`}}, want: Outcome{Revision: "9"}, is: ErrRevisionFailed,
			lines: []string{getRevision, getRevision, deleteRevision},
		},
		{
			name: "switch forgot it", looks: []reply{{status: 404}}, want: Outcome{Revision: "9"}, is: ErrNotFound,
			lines: []string{getRevision},
		},
		{
			name: "switch comes up", looks: []reply{{status: 503}, {body: `{"state":"applied"}`}},
			want:  Outcome{Revision: "9", Changed: true, Saved: true},
			lines: []string{getRevision, getRevision, getRevision, saveApplied},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, c := bench(t, Options{Timing: Timing{RevisionPoll: time.Millisecond}})
			obedient(f)
			f.on(getRevision, tt.looks...)
			out, err := c.FinishRevision(t.Context(), "9")
			require.ErrorIs(t, err, tt.is)
			require.Equal(t, tt.want, out)
			require.Equal(t, tt.lines, f.lines())
		})
	}
}

func TestRevisionWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		looks   []reply
		code    Code
		looked  int
		took    time.Duration
		discard int
	}{
		{name: "slow", looks: []reply{{body: `{"state":"apply"}`}, {body: `{"state":"apply"}`}, {body: `{"state":"applied"}`}}, looked: 3, took: 2 * time.Second},
		{name: "unreachable for a while", looks: []reply{{cut: true}, {status: 503}, {status: 408}, {body: `{"state":"applied"}`}}, looked: 4, took: 3 * time.Second},
		{name: "never", looks: []reply{{body: `{"state":"apply"}`}}, code: ErrTimeout, looked: 61, took: time.Minute, discard: 1},
		{name: "unreachable", looks: []reply{{cut: true}}, code: ErrTimeout, looked: 61, took: time.Minute, discard: 1},
		{name: "hangs", looks: []reply{{hang: true}}, code: ErrTimeout, looked: 2, took: 61 * time.Second, discard: 1},
		{name: "ays_fail ends at once", looks: []reply{{body: `{"state":"ays_fail"}`}}, code: ErrRevisionFailed, looked: 1, discard: 1},
		{name: "confirm ends at once", looks: []reply{{body: `{"state":"confirm"}`}}, code: ErrRevisionFailed, looked: 1, discard: 1},
		{name: "401", looks: []reply{{status: 401}}, code: ErrUnauthenticated, looked: 1, discard: 1},
		{name: "gone", looks: []reply{{status: 404}}, code: ErrNotFound, looked: 1},
		{name: "applied with an error", looks: []reply{{body: `{"state":"applied","transition":{"issue":{"severity":"error","message":"x"}}}`}}, code: ErrRevisionFailed, looked: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, c := bubble(t, Options{})
				obedient(f)
				f.on(getRevision, tt.looks...)
				begun := time.Now()
				_, err := c.AwaitRevision(t.Context(), "9", nil)
				if tt.code == "" {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, tt.code)
				}
				require.Equal(t, tt.took, time.Since(begun))
				require.Equal(t, tt.looked, f.count(getRevision))
				require.Equal(t, tt.discard, f.count(deleteRevision))
			})
		})
	}
}

func TestRevisionTimeoutTellsTheLastState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := bubble(t, Options{Timing: Timing{RevisionLimit: 3 * time.Second}})
		f.on(getRevision, reply{body: `{"state":"ready","transition":{"issue":"waits for a lock"}}`}, reply{status: 503, body: "busy"})
		_, err := c.AwaitRevision(t.Context(), "9", nil)
		require.ErrorIs(t, err, ErrTimeout)
		require.ErrorIs(t, err, ErrUnavailable, "the last error is the cause")
		for _, part := range []string{`"ready"`, "waits for a lock", "busy", "3s"} {
			require.Contains(t, err.Error(), part)
		}
	})
}

// Nothing is left on the switch whatever fails.
func TestEveryFailedPathDiscards(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		spoil   func(f *fakeSwitch, cancel context.CancelFunc)
		code    Code
		discard int
		saves   int
	}{
		{name: "create refused", code: ErrUnavailable, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(postRevision, reply{status: 503}) }},
		{name: "create without id", code: ErrBadResponse, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(postRevision, reply{body: `{}`}) }},
		{name: "first stage refused", code: ErrInternal, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(stageCluster, reply{status: 400}) }},
		{name: "second stage refused", code: ErrNotFound, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(stageCert, reply{status: 404}) }},
		{name: "stage cut", code: ErrUnavailable, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(stageCert, reply{cut: true}) }},
		{name: "stage answers no json", code: ErrBadResponse, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(stageCert, reply{body: "x"}) }},
		{name: "cancelled while staging", code: ErrCanceled, discard: 1, spoil: func(f *fakeSwitch, cancel context.CancelFunc) {
			f.on(stageCert, reply{hang: true, then: cancel})
		}},
		{name: "apply refused", code: ErrInternal, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) {
			f.on(patchRevision, reply{status: 500, body: `{"message":"boom"}`})
		}},
		{name: "apply conflict", code: ErrConflict, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(patchRevision, reply{status: 409}) }},
		{name: "cancelled while applying", code: ErrCanceled, discard: 1, spoil: func(f *fakeSwitch, cancel context.CancelFunc) {
			f.on(patchRevision, reply{hang: true, then: cancel})
		}},
		{name: "apply cut and never applied", code: ErrTimeout, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) {
			f.on(patchRevision, reply{cut: true})
			f.on(getRevision, reply{body: pendingRevision})
		}},
		{name: "apply cut and applied", saves: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(patchRevision, reply{cut: true}) }},
		{name: "failed", code: ErrRevisionFailed, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) {
			f.on(getRevision, reply{body: `{"state":"failed"}`})
		}},
		{name: "never applied", code: ErrTimeout, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(getRevision, reply{body: pendingRevision}) }},
		{name: "wait refused", code: ErrUnauthenticated, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) { f.on(getRevision, reply{status: 401}) }},
		{name: "cancelled while waiting", code: ErrCanceled, discard: 1, spoil: func(f *fakeSwitch, cancel context.CancelFunc) {
			f.on(getRevision, reply{body: `{"state":"apply"}`, then: cancel})
		}},
		{name: "discard fails too", code: ErrInternal, discard: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) {
			f.on(stageCluster, reply{status: 400})
			f.on(deleteRevision, reply{hang: true})
		}},
		{name: "save refused", code: ErrUnavailable, saves: 1, spoil: func(f *fakeSwitch, _ context.CancelFunc) {
			f.on(saveApplied, reply{status: 503})
			f.on(patchRevision, reply{}, reply{status: 400})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, c := bubble(t, Options{})
				obedient(f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tt.spoil(f, cancel)
				out, err := c.Change(ctx, SetClusterState(true), SetAPICertificate("id"))
				if tt.code == "" {
					require.NoError(t, err)
					require.True(t, out.Saved)
				} else {
					require.ErrorIs(t, err, tt.code)
					require.False(t, out.Saved)
				}
				require.Equal(t, tt.discard, f.count(deleteRevision), f.lines())
				require.Equal(t, tt.saves, f.count(saveApplied))
			})
		})
	}
}

// The steps leave the revision to a successor when only the owner ends.
func TestInterruptedStepsKeepTheRevision(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(context.Context, *Client) error{
		"stage": func(ctx context.Context, c *Client) error { return c.StageRevision(ctx, "9", SetClusterState(true)) },
		"apply": func(ctx context.Context, c *Client) error { return c.ApplyRevision(ctx, "9") },
		"wait":  func(ctx context.Context, c *Client) error { _, err := c.AwaitRevision(ctx, "9", nil); return err },
		"finish": func(ctx context.Context, c *Client) error {
			_, err := c.FinishRevision(ctx, "9")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := bench(t, Options{})
			obedient(f)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for _, line := range []string{stageCluster, patchRevision, getRevision} {
				f.on(line, reply{hang: true, then: cancel})
			}
			require.ErrorIs(t, step(ctx, c), context.Canceled)
			require.Zero(t, f.count(deleteRevision))
		})
	}
}

func TestLostApplicationIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, c := bubble(t, Options{})
		obedient(f)
		f.on(patchRevision, reply{status: 504, body: "gateway"})
		f.on(getRevision, reply{body: pendingRevision})
		_, err := c.Change(t.Context(), SetClusterState(true))
		require.ErrorIs(t, err, ErrTimeout)
		require.Contains(t, err.Error(), "the answer to its application was lost")
		require.Contains(t, err.Error(), "HTTP 504")
	})
}

func TestSave(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name              string
		primary, fallback int
		code              Code
		lines             []string
	}{
		{name: "applied", primary: 200, lines: []string{saveApplied}},
		{name: "fallback", primary: 400, fallback: 200, lines: []string{saveApplied, patchRevision}},
		{name: "primary tells", primary: 503, fallback: 400, code: ErrUnavailable},
		{name: "primary unknown", primary: 404, fallback: 409, code: ErrConflict},
		{name: "credentials in the primary", primary: 401, fallback: 503, code: ErrUnauthenticated},
		{name: "credentials in the fallback", primary: 503, fallback: 401, code: ErrUnauthenticated},
		{name: "unknown and credentials", primary: 404, fallback: 401, code: ErrUnauthenticated},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, c := bench(t, Options{})
			f.on(saveApplied, reply{status: tt.primary, body: `{"message":"first"}`})
			f.on(patchRevision, reply{status: tt.fallback, body: `{"message":"second"}`})
			err := c.SaveRevision(t.Context(), "9")
			if tt.lines != nil {
				require.NoError(t, err)
				require.Equal(t, tt.lines, f.lines())
				return
			}
			require.ErrorIs(t, err, tt.code)
			require.Equal(t, tt.code, CodeOf(err))
			require.Contains(t, err.Error(), "first")
			require.Contains(t, err.Error(), "second")
			for _, s := range f.requests() {
				require.JSONEq(t, saveBody, s.body)
			}
		})
	}
	t.Run("without a revision there is no fallback", func(t *testing.T) {
		t.Parallel()
		f, c := bench(t, Options{})
		f.on(saveApplied, reply{status: 503})
		require.ErrorIs(t, c.SaveRevision(t.Context(), ""), ErrUnavailable)
		require.Len(t, f.requests(), 1)
	})
}

// The own password changes while the revision is waited for.
func TestAwaitWithOtherErrors(t *testing.T) {
	t.Parallel()
	f, c := bench(t, Options{Timing: Timing{RevisionPoll: time.Millisecond}})
	f.on(getRevision, reply{status: 401}, reply{status: 401}, reply{body: `{"state":"applied"}`})
	s, err := c.AwaitRevision(t.Context(), "9", func(err error) bool { return Retryable(err) || errors.Is(err, ErrUnauthenticated) })
	require.NoError(t, err)
	require.Equal(t, RevisionApplied, s.Verdict)
	require.True(t, slices.Equal(f.lines(), []string{getRevision, getRevision, getRevision}))
}
