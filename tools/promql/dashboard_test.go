// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type dashboard struct {
	Panels []struct {
		ID          int
		Type, Title string
		Description string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

var (
	variable = regexp.MustCompile(`\$([a-zA-Z_]+)`)
	legend   = regexp.MustCompile(`\{\{(\w+)\}\}`)
	valuesOf = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
)

// grafanaVariables are those that Grafana itself has.
func grafanaVariables() map[string]string {
	return map[string]string{"__rate_interval": "5m", "__range": "6h"}
}

func TestDashboard(t *testing.T) {
	metrics := readMetrics(t)
	text, err := os.ReadFile("../../deploy/grafana/rackbus.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))

	known := grafanaVariables()
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		query := valuesOf.FindStringSubmatch(v.Definition)
		require.NotNil(t, query, v.Name)
		requireKnown(t, metrics, replace(t, query[1], known))
		require.Contains(t, append(targetLabels(), "family"), query[2])
		known[v.Name] = ".*"
	}
	require.Contains(t, known, "site")
	require.Contains(t, known, "instance")

	var rows []string
	ids, used := map[int]bool{}, map[string]bool{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels with id %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Contains(t, target.Expr, `site=~"$site", instance=~"$instance"`, p.Title)
			expr := requireKnown(t, metrics, replace(t, target.Expr, known))
			shown := (&checker{metrics: metrics}).labels(expr)
			for _, l := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Contains(t, shown, l[1], "legend of %s", p.Title)
			}
			for name := range metrics {
				used[name] = used[name] || strings.Contains(target.Expr, name+"{")
			}
		}
	}
	require.Equal(t, []string{"At a glance", "API", "Jobs", "Agents", "Bus and fold", "Devices", "Rollouts and diagnoses"}, rows)
	require.Greater(t, len(slices.DeleteFunc(keys(used), func(name string) bool { return !used[name] })), 25)
}

func keys(m map[string]bool) []string {
	out := make([]string, 0, len(m))
	for key := range m {
		out = append(out, key)
	}
	return out
}

func replace(t *testing.T, query string, known map[string]string) string {
	t.Helper()
	return variable.ReplaceAllStringFunc(query, func(text string) string {
		value, found := known[text[1:]]
		require.True(t, found, "unknown variable %s in %s", text, query)
		return value
	})
}
