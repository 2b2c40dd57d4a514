// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoad(t *testing.T) {
	rules, err := Load(strings.NewReader(`[
		{"action":{"Latency":{"mean":0.5,"jitter":"100ms"}}},
		{"id":"x","device":"compute-*","selector":{"odata_id":"/redfish/v1/"},"action":{"cut":true},"remaining":2},
		{"selector":{"path":"/a/*","method":"post"},"action":{"Cut":{"after_execute":true}}},
		{"selector":"Any","action":"refuse"}]`))
	require.NoError(t, err)
	require.Equal(t, []Rule{
		{Action: Action{Latency: &Latency{Mean: 500 * time.Millisecond, Jitter: 100 * time.Millisecond}}},
		{ID: "x", Device: "compute-*", Selector: Selector{ODataID: "/redfish/v1/"}, Action: Action{Cut: &Cut{}}, Remaining: 2},
		{Selector: Selector{Path: "/a/*", Method: "POST"}, Action: Action{Cut: &Cut{AfterExecute: true}}},
		{Action: Action{Refuse: true}},
	}, rules)

	out, err := json.Marshal(rules)
	require.NoError(t, err)
	again, err := Load(strings.NewReader(string(out)))
	require.NoError(t, err, string(out))
	require.Equal(t, rules, again, "rules survive their own JSON")
}

func TestLoadRefuses(t *testing.T) {
	for _, text := range []string{
		`{}`, `[{}]`, `[{"action":{}}]`, `[{"action":"explode"}]`, `[{"action":{"explode":1}}]`,
		`[{"action":{"status":503,"malformed":true}}]`, `[{"action":{"status":42}}]`,
		`[{"action":{"status":503},"remaining":-1}]`, `[{"action":{"latency":{"mean":"soon"}}}]`,
		`[{"action":"refuse","selector":{"path":"/x"}}]`, `[{"action":{"status":503},"selector":{"path":"/x","odata_id":"/y"}}]`,
		`[{"action":{"status":503},"selektor":"any"}]`, `[{"action":{"status":503},"selector":{"uri":"/x"}}]`,
	} {
		_, err := Load(strings.NewReader(text))
		require.Error(t, err, text)
	}
}

func TestMatchOrderAndCounting(t *testing.T) {
	var s Set
	add := func(r Rule) {
		_, err := s.Add(r)
		require.NoError(t, err)
	}
	add(Rule{ID: "wait", Action: Action{Latency: &Latency{}}})
	add(Rule{ID: "first", Action: Action{Status: &Status{Code: 500}}, Remaining: 1})
	add(Rule{ID: "second", Action: Action{Malformed: true}, Remaining: 1})
	add(Rule{ID: "merge", Action: Action{JSONMerge: json.RawMessage(`{}`)}})
	ids := func(rules []Rule) (out []string) {
		for _, r := range rules {
			out = append(out, r.ID)
		}
		return out
	}
	require.Equal(t, []string{"wait", "first", "merge"}, ids(s.Match("d", "GET", "/x")))
	require.Equal(t, []string{"wait", "second", "merge"}, ids(s.Match("d", "GET", "/x")), "a use not made is not counted")
	require.Equal(t, []string{"wait", "merge"}, ids(s.Match("d", "GET", "/x")))
	add(Rule{ID: "wait", Device: "other", Action: Action{Latency: &Latency{}}})
	require.Equal(t, []string{"merge"}, ids(s.Match("d", "GET", "/x")), "the same id replaces")
	require.Equal(t, []string{"wait", "merge"}, ids(s.Rules()))
	s.Clear()
	require.Empty(t, s.Match("d", "GET", "/x"))
}

func TestSelectors(t *testing.T) {
	tests := []struct {
		name         string
		selector     Selector
		method, path string
		want         bool
	}{
		{"resource", Resource("/redfish/v1/Systems/*"), "GET", "/redfish/v1/Systems/System_0/", true},
		{"resource is read", Resource("/redfish/v1/Systems/*"), "PATCH", "/redfish/v1/Systems/System_0", false},
		{"resource with slash", Resource("/redfish/v1/"), "HEAD", "/redfish/v1", true},
		{"path", Request("", "/a/*"), "DELETE", "/a/b", true},
		{"path and method", Request("POST", "/a/*"), "GET", "/a/b", false},
		{"any", Any(), "PUT", "/", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var s Set
			_, err := s.Add(Rule{Selector: tt.selector, Action: Action{Malformed: true}})
			require.NoError(t, err)
			require.Equal(t, tt.want, len(s.Match("d", tt.method, tt.path)) == 1)
		})
	}
}

func TestRefuseConnections(t *testing.T) {
	var s Set
	_, err := s.Add(Rule{ID: "r", Device: "a", Action: Action{Refuse: true}, Remaining: 1})
	require.NoError(t, err)
	require.False(t, s.Refusing("a"), "limited rules do not close the port")
	require.Empty(t, s.Match("a", "GET", "/"), "no request is selected")
	_, refused := s.RefuseConnection("b")
	require.False(t, refused)
	id, refused := s.RefuseConnection("a")
	require.True(t, refused)
	require.Equal(t, "r", id)
	_, refused = s.RefuseConnection("a")
	require.False(t, refused)
	_, err = s.Add(Rule{Action: Action{Refuse: true}})
	require.NoError(t, err)
	require.True(t, s.Refusing("a"))
}
