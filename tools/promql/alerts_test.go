// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/stretchr/testify/require"
)

const (
	rulesFile  = "../../deploy/prometheus/rackbus.rules.yaml"
	runbook    = "../../docs/runbook.md"
	runbookURL = "https://github.com/rackbus/rackbus/blob/main/docs/runbook.md#"
)

func readRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(rulesFile, false, model.UTF8Validation)
	require.Empty(t, errs)
	var out []rulefmt.Rule
	for _, g := range groups.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

var shownLabel = regexp.MustCompile(`\$labels\.(\w+)`)

func TestAlerts(t *testing.T) {
	metrics, sections := readMetrics(t), readRunbook(t)
	names := map[string]bool{}
	for _, r := range readRules(t) {
		require.False(t, names[r.Alert], r.Alert)
		names[r.Alert] = true
		labels := (&checker{metrics: metrics}).labels(requireKnown(t, metrics, r.Expr))
		require.Contains(t, labels, "site", r.Alert)
		require.Contains(t, []string{"info", "warning", "critical"}, r.Labels["severity"], r.Alert)
		for _, key := range []string{"summary", "description"} {
			require.NotEmpty(t, r.Annotations[key], r.Alert)
			for _, l := range shownLabel.FindAllStringSubmatch(r.Annotations[key], -1) {
				require.Contains(t, labels, l[1], "%s of %s", key, r.Alert)
			}
		}
		require.Equal(t, runbookURL+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
		require.Contains(t, sections, r.Alert, "docs/runbook.md")
		for _, part := range []string{"**What it means.**", "**How to check.**", "**What to do.**"} {
			require.Contains(t, sections[r.Alert], part, r.Alert)
		}
	}
	for section := range sections {
		require.True(t, names[section] || !strings.HasPrefix(section, "Rackbus"), "no alert for section %s", section)
	}
}

// readRunbook returns the sections of the runbook by their headings.
func readRunbook(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(runbook)
	require.NoError(t, err)
	out := map[string]string{}
	for _, section := range strings.Split(string(text), "\n### ")[1:] {
		name, body, _ := strings.Cut(section, "\n")
		out[name] = body
	}
	return out
}

// fires evaluates an alert's expression on series, of which there is a value every minute, an hour after the first.
func fires(t *testing.T, expr, series string) []string {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+series)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(time.Hour))
	require.NoError(t, err)
	defer query.Close()
	result := query.Exec(t.Context())
	require.NoError(t, result.Err)
	vector, err := result.Vector()
	require.NoError(t, err)
	var out []string
	for _, sample := range vector {
		out = append(out, labelsOf(sample))
	}
	slices.Sort(out)
	return out
}

func labelsOf(s promql.Sample) string { return s.Metric.String() }

// TestAlertsFire: every alert fires on what it is about, and is quiet on what is well.
func TestAlertsFire(t *testing.T) {
	cases := alertCases()
	for _, r := range readRules(t) {
		c, found := cases[r.Alert]
		require.True(t, found, "no case for %s", r.Alert)
		t.Run(r.Alert, func(t *testing.T) {
			require.Equal(t, c.fires, fires(t, r.Expr, c.bad))
			require.Empty(t, fires(t, r.Expr, c.good))
		})
		delete(cases, r.Alert)
	}
	require.Empty(t, cases)
}

// TestNoJobsServiceIsNoFold: the alert does not need a series of what is missing.
func TestNoJobsServiceIsNoFold(t *testing.T) {
	for _, r := range readRules(t) {
		if r.Alert == "RackbusPartitionWithoutFold" {
			require.Equal(t, []string{`{site="a"}`}, fires(t, r.Expr, build))
			return
		}
	}
	t.Fatal("no such alert")
}
