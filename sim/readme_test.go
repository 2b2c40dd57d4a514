// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

// TestReadme reads every knob and rule of the README's table, and finds every knob there.
func TestReadme(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	snippet := regexp.MustCompile("`([^`]+)`")
	kind := regexp.MustCompile(`\b([RKS]) $`)
	rules, shown, ofSwitches := 0, map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		last := ""
		for _, at := range snippet.FindAllStringSubmatchIndex(line, -1) {
			if m := kind.FindStringSubmatch(line[:at[0]]); m != nil {
				last = m[1]
			}
			code := line[at[2]:at[3]]
			switch {
			case last == "K" && strings.HasPrefix(code, "{"):
				var k bmc.Knobs
				require.NoError(t, json.Unmarshal([]byte(code), &k), code)
				members := map[string]any{}
				require.NoError(t, json.Unmarshal([]byte(code), &members))
				for name := range members {
					shown[name] = true
				}
			case last == "S" && strings.HasPrefix(code, "{"):
				d := json.NewDecoder(strings.NewReader(code))
				d.DisallowUnknownFields()
				require.NoError(t, d.Decode(&nvswitch.Knobs{}), code)
				members := map[string]any{}
				require.NoError(t, json.Unmarshal([]byte(code), &members))
				for name := range members {
					ofSwitches[name] = true
				}
			case last == "R" && strings.HasPrefix(code, `{"action"`), last == "R" && strings.HasPrefix(code, `{"selector"`):
				_, err := faults.Load(strings.NewReader("[" + code + "]"))
				require.NoError(t, err, code)
				rules++
			}
		}
	}
	require.Greater(t, rules, 15)
	require.True(t, shown["background_copy"])
	complete(t, reflect.TypeFor[bmc.Knobs](), shown)
	complete(t, reflect.TypeFor[nvswitch.Knobs](), ofSwitches)
	for _, inner := range []reflect.Type{
		reflect.TypeFor[nvswitch.SFTPKnobs](), reflect.TypeFor[nvswitch.NMXCKnobs](), reflect.TypeFor[nvswitch.ActionRule](),
		reflect.TypeFor[nvswitch.CommandRule](), reflect.TypeFor[nvswitch.RevisionRule](),
	} {
		for field := range inner.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			named := regexp.MustCompile("[`\"]" + name + "[`\"]")
			require.True(t, named.Match(text), "%s of %s is not in the table", name, inner)
		}
	}
}

// complete finds every knob among those shown.
func complete(t *testing.T, knobs reflect.Type, shown map[string]bool) {
	t.Helper()
	for field := range knobs.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "-" {
			require.True(t, shown[name], "%s is not in the table", name)
		}
	}
}
