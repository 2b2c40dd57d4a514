// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// documents of all shapes, for comparison with encoding/json.
var documents = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a" : 1 , "b":"x"}`, "{\n\t\"a\":\r\n[1,2 , 3]\n}",
	`{"a":{"b":{"c":[{},[],{"d":null}]}},"e":false}`, `{"a":"}","b":"]","c":"\"{","d":"\\"}`,
	`{"a":"\\\\\"","b":"é"}`, `{"\u0041":1,"x\"y":2}`, `{"a":1,"a":2}`, `{"":0,"n":-1.5e+3}`, "{\"bad\":\"\xff\"}",
	`[]`, `null`, `1`, `"text"`, ` true `, ``, ` `, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{'a':1}`, `{"a":01}`, `{"a":1}x`,
}

func TestParseDocumentAsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, text := range documents {
		t.Run(text, func(t *testing.T) { compareParse(t, []byte(text)) })
	}
	t.Run("many members", func(t *testing.T) {
		compareParse(t, []byte(`{"`+strings.Join(strings.Split(strings.Repeat("m", 60), ""), `":[ ],"`)+`x":{}}`))
	})
}

func FuzzParseDocument(f *testing.F) {
	for _, text := range documents {
		f.Add([]byte(text))
	}
	f.Fuzz(compareParse)
}

func compareParse(t *testing.T, raw []byte) {
	var want map[string]json.RawMessage
	wantErr := json.Unmarshal(raw, &want)
	got, err := parseDocument(raw)
	if wantErr != nil || want == nil {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for name, value := range want {
		require.Equal(t, string(value), string(got[name]), name)
		compareValue(t, got, name, value)
	}
}

// compareValue takes one member apart both ways.
func compareValue(t *testing.T, d document, name string, value json.RawMessage) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		list = nil
	}
	require.Len(t, d.list(name), len(list))
	for i, e := range list {
		require.Equal(t, string(e), string(d.list(name)[i]))
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil {
		object = nil
	}
	require.Len(t, d.object(name), len(object))
	for key, e := range object {
		require.Equal(t, string(e), string(d.object(name)[key]))
	}
	var text string
	if value[0] == '"' && json.Unmarshal(value, &text) == nil {
		require.Equal(t, text, d.text(name))
	}
	d.links(name) // must not panic, whatever it is
}
