// SPDX-License-Identifier: Apache-2.0

// Package promql holds the alerts and the dashboard against the metrics that real processes show. It is a module of its own,
// outside of the workspace, for the parser and the engine of Prometheus.
package promql

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const metricsDoc = "../../docs/metrics.md"

// metric is a line of docs/metrics.md, which a test of test/deploy holds against the answers of real processes.
type metric struct {
	kind   string
	labels []string
}

// targetLabels are those that the scrape configuration gives to every series.
func targetLabels() []string { return []string{"site", "instance", "job"} }

var quoted = regexp.MustCompile("`([a-z_]+)`")

// readMetrics returns all series by name, those of histograms by the names of their parts.
func readMetrics(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(metricsDoc)
	require.NoError(t, err)
	out := map[string]metric{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		m := metric{kind: strings.TrimSpace(cells[2]), labels: targetLabels()}
		for _, l := range quoted.FindAllStringSubmatch(cells[3], -1) {
			m.labels = append(m.labels, l[1])
		}
		name := strings.Trim(cells[1], " `")
		if m.kind != "histogram" {
			out[name] = m
			continue
		}
		out[name+"_sum"], out[name+"_count"] = m, m
		out[name+"_bucket"] = metric{kind: m.kind, labels: append([]string{"le"}, m.labels...)}
	}
	require.Greater(t, len(out), 40)
	return out
}

// checker looks at queries.
type checker struct {
	metrics map[string]metric
	faults  []string
}

// requireKnown: a query parses, and has only metrics and labels that there are.
func requireKnown(t *testing.T, metrics map[string]metric, query string) parser.Expr {
	t.Helper()
	expr, err := parser.ParseExpr(query)
	require.NoError(t, err, query)
	c := &checker{metrics: metrics}
	c.labels(expr)
	require.Empty(t, c.faults, query)
	return expr
}

func (c *checker) fault(text string) []string {
	c.faults = append(c.faults, text)
	return nil
}

// labels returns those that the result of an expression may have.
func (c *checker) labels(e parser.Expr) []string {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return c.selector(e)
	case *parser.MatrixSelector:
		return c.selector(e.VectorSelector.(*parser.VectorSelector))
	case *parser.SubqueryExpr:
		return c.labels(e.Expr)
	case *parser.ParenExpr:
		return c.labels(e.Expr)
	case *parser.StepInvariantExpr:
		return c.labels(e.Expr)
	case *parser.UnaryExpr:
		return c.labels(e.Expr)
	case *parser.AggregateExpr:
		return c.aggregate(e)
	case *parser.BinaryExpr:
		return c.binary(e)
	case *parser.Call:
		return c.call(e)
	}
	return nil
}

func (c *checker) selector(v *parser.VectorSelector) []string {
	m, found := c.metrics[v.Name]
	if !found {
		return c.fault("unknown metric " + v.Name)
	}
	for _, matcher := range v.LabelMatchers {
		if matcher.Name != "__name__" && !slices.Contains(m.labels, matcher.Name) {
			c.fault(v.Name + " has no label " + matcher.Name)
		}
	}
	return m.labels
}

func (c *checker) aggregate(e *parser.AggregateExpr) []string {
	inner := c.labels(e.Expr)
	for _, l := range e.Grouping {
		if !slices.Contains(inner, l) {
			c.fault("grouped by " + l + ", which is not there: " + e.String())
		}
	}
	switch {
	case e.Op == parser.TOPK || e.Op == parser.BOTTOMK:
		return inner
	case e.Without:
		return slices.DeleteFunc(slices.Clone(inner), func(l string) bool { return slices.Contains(e.Grouping, l) })
	}
	return e.Grouping
}

func (c *checker) binary(e *parser.BinaryExpr) []string {
	left, right := c.labels(e.LHS), c.labels(e.RHS)
	if e.VectorMatching != nil {
		for _, l := range e.VectorMatching.MatchingLabels {
			if !slices.Contains(left, l) || !slices.Contains(right, l) {
				c.fault("matched on " + l + ", which is not on both sides: " + e.String())
			}
		}
		// Without on(), sides with other labels never meet.
		vectors := e.LHS.Type() == parser.ValueTypeVector && e.RHS.Type() == parser.ValueTypeVector
		if vectors && !e.VectorMatching.On && e.Op != parser.LOR && !sameSet(left, right) {
			c.fault("sides with other labels: " + e.String())
		}
	}
	if e.LHS.Type() == parser.ValueTypeScalar {
		return right
	}
	return left
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// counterFuncs are the functions that make sense of counters only.
func counterFuncs() []string { return []string{"rate", "increase", "irate"} }

func (c *checker) call(e *parser.Call) []string {
	var out []string
	for _, arg := range e.Args {
		if inner := c.labels(arg); inner != nil {
			out = inner
		}
		if m, ok := arg.(*parser.MatrixSelector); ok && slices.Contains(counterFuncs(), e.Func.Name) {
			name := m.VectorSelector.(*parser.VectorSelector).Name
			if c.metrics[name].kind == "gauge" {
				c.fault(e.Func.Name + " of the gauge " + name)
			}
		}
	}
	if e.Func.Name == "histogram_quantile" {
		if !slices.Contains(out, "le") {
			c.fault("no le: " + e.String())
		}
		out = slices.DeleteFunc(slices.Clone(out), func(l string) bool { return l == "le" })
	}
	return out
}

// TestUnknownIsRefused: the checks above can fail.
func TestUnknownIsRefused(t *testing.T) {
	metrics := readMetrics(t)
	for query, says := range map[string]string{
		`rackbus_fold_lag`:                                                   "unknown metric rackbus_fold_lag",
		`rackbus_fold_commit_seconds`:                                        "unknown metric",
		`rackbus_fold_lag_events{part="1"}`:                                  "has no label part",
		`sum by (rack) (rackbus_fold_lag_events)`:                            "grouped by rack",
		`rate(rackbus_capacity_records[5m])`:                                 "rate of the gauge",
		`sum by (site) (up)`:                                                 "unknown metric up",
		`sum by (site) (rackbus_ready) / sum(rackbus_ready)`:                 "sides with other labels",
		`rackbus_ready * on (family) rackbus_ready`:                          "matched on family",
		`histogram_quantile(0.9, sum(rackbus_fold_commit_seconds_bucket))`:   "no le",
		`sum by (site) (sum by (family) (rackbus_agent_jobs_in_flight)) > 0`: "grouped by site",
	} {
		expr, err := parser.ParseExpr(query)
		require.NoError(t, err)
		c := &checker{metrics: metrics}
		c.labels(expr)
		require.Contains(t, strings.Join(c.faults, "\n"), says, query)
	}
}
