// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var run = flag.Bool("hardware.run", false, "run every test of the table")

// TestRun runs the tests of the table and looks for each by its name among those that have passed.
func TestRun(t *testing.T) {
	if !*run {
		t.Skip("needs -hardware.run; the tests run by themselves in their folders")
	}
	for folder, names := range all() {
		t.Run(folder, func(t *testing.T) {
			functions := map[string]bool{}
			for name := range names {
				function, _, _ := strings.Cut(name, "/")
				functions[function] = true
			}
			var list []string
			for function := range functions {
				list = append(list, function)
			}
			passed := passing(t, "^("+strings.Join(list, "|")+")$", "./"+folder)
			for name := range names {
				require.Contains(t, passed, name)
			}
		})
	}
}

// passing runs tests, of packages that args name, and returns those that have passed, with the groups they are in.
func passing(t *testing.T, pattern string, args ...string) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-count=1", "-timeout=30m", "-json", "-run", pattern}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	passed := map[string]bool{}
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test string }
		require.NoError(t, json.Unmarshal(line, &event))
		if event.Action != "pass" || event.Test == "" {
			continue
		}
		for name := event.Test; name != ""; {
			passed[name] = true
			at := strings.LastIndex(name, "/")
			name = name[:max(at, 0)]
		}
	}
	return passed
}
