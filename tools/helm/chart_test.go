// SPDX-License-Identifier: Apache-2.0

// Package helm tests the chart in deploy/helm with the code of Helm itself. It is a module of its own, outside of the
// workspace: Helm brings half of Kubernetes along.
package helm

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../../deploy/helm/rackbus"
	space    = "racks"
)

// values reads one of testdata's files, "" for none: the defaults of the chart.
func values(t *testing.T, name string) map[string]any {
	t.Helper()
	out := map[string]any{}
	if name == "" {
		return out
	}
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &out))
	return out
}

// everyValues are the sets of values that all rules are checked with.
func everyValues() []string { return []string{"", "full", "own-bus", "digits"} }

// render returns the manifests by the name of their template.
func render(vals map[string]any) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: "rackbus", Namespace: space, IsInstall: true}
	rendered, err := util.ToRenderValues(chart, vals, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, rendered)
}

func TestLint(t *testing.T) {
	for _, name := range everyValues() {
		linter := lint.RunAll(chartDir, values(t, name), space)
		for _, m := range linter.Messages {
			require.Less(t, m.Severity, support.WarningSev, "%s: %v", name, m)
		}
	}
}

// set replaces one value; path has dots.
func set(vals map[string]any, path string, value any) {
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		inner, ok := vals[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			vals[key] = inner
		}
		vals = inner
	}
	vals[keys[len(keys)-1]] = value
}

func TestWrongValuesAreRefused(t *testing.T) {
	tests := []struct {
		name, path string
		value      any
		says       string
	}{
		{"unknown key", "jobs.replica", 3, "additional properties 'replica' not allowed"},
		{"unknown key at the top", "nat", map[string]any{}, "additional properties 'nat' not allowed"},
		{"text for a number", "api.replicas", "two", "/api/replicas"},
		{"no replica", "switchAgent.replicas", 0, "/switchAgent/replicas"},
		{"two servers", "nats.replicas", 2, "/nats/replicas"},
		{"a role that there is not", "access.defaultRole", "root", "/access/defaultRole"},
		{"a secret in place of its name", "jobs.existingSecret", "SUAJK...", "/jobs/existingSecret"},
		{"no secret", "api.existingSecret", "", "/api/existingSecret"},
		{"a network without its size", "computeAgent.hardware.cidrs", []any{"10.0.0.0"}, "/computeAgent/hardware/cidrs/0"},
		{"no drain", "drainSeconds", 0, "/drainSeconds"},
		{"plaintext console", "console.baseURL", "http://racks", "/console/baseURL"},
		{"a fraction that would be cut", "settings", map[string]any{"timing.scale": 0.5}, "/settings/timing.scale"},
		{"a setting that the chart makes", "settings", map[string]any{"bus.nkey_seed_file": "/tmp/seed"}, "invalid propertyName 'bus.nkey_seed_file'"},
		{"servers of one's own and the chart's", "bus.urls", []any{"tls://nats:4222"}, "bus.urls and nats.enabled exclude each other"},
		{"no server", "nats.enabled", false, "name the NATS servers"},
		{"three servers with the secrets of one", "nats.replicas", 3, "nats.envSecrets"},
		{"files that pods do not share", "firmware.artifactStore", "dir", "firmware.existingClaim"},
		{"domains without a default", "switches.domains", []any{map[string]any{"name": "a", "existingSecret": "b"}}, "switches.defaultDomain"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			vals := map[string]any{}
			set(vals, tt.path, tt.value)
			_, err := render(vals)
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// TestEveryValueIsDocumented: every key of values.yaml has a comment, its own or that of a block above it.
func TestEveryValueIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	require.NoError(t, err)
	var undocumented []string
	commented := false
	blocks := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "#"):
			commented = true
		case trimmed == "":
			commented = false
		case indent == 0:
			key, _, _ := strings.Cut(trimmed, ":")
			blocks[key] = commented
			commented = false
		default:
			commented = false
		}
	}
	// These have keys that each say themselves what they are.
	own := []string{"image", "log", "firmware", "console", "serviceAccount", "podDisruptionBudget", "metrics", "bus", "api", "jobs", "computeAgent", "switchAgent", "powershelfAgent"}
	for _, key := range slices.Sorted(maps.Keys(blocks)) {
		if !blocks[key] && !slices.Contains(own, key) {
			undocumented = append(undocumented, key)
		}
	}
	require.Empty(t, undocumented)
}

// TestSchemaKnowsEveryValue: values.schema.json and values.yaml have the same keys.
func TestSchemaKnowsEveryValue(t *testing.T) {
	chart, err := loader.Load(chartDir)
	require.NoError(t, err)
	var schema map[string]any
	require.NoError(t, yaml.Unmarshal(chart.Schema, &schema))
	requireSameKeys(t, "", schema, chart.Values)
}

func requireSameKeys(t *testing.T, path string, schema, vals map[string]any) {
	t.Helper()
	properties, ok := schema["properties"].(map[string]any)
	if !ok {
		return // a map of the user's own
	}
	require.Equal(t, false, schema["additionalProperties"], path)
	for key := range properties {
		if key != "global" { // Helm's own
			require.Contains(t, vals, key, path)
		}
	}
	for key, value := range vals {
		require.Contains(t, properties, key, path)
		inner, ok := value.(map[string]any)
		if below, is := properties[key].(map[string]any); ok && is {
			requireSameKeys(t, path+"."+key, below, inner)
		}
	}
}
