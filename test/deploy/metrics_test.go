// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/rackbus/rackbus/pkg/certs"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/test/cluster"
)

// metricsDoc lists every metric. tools/promql holds the alerts and the dashboard against it.
const metricsDoc = "../../docs/metrics.md"

// Where the table in metricsDoc begins and ends.
const (
	tableBegin = "<!-- begin of what the processes have shown: go test ./test/deploy -run TestMetrics -update -->\n"
	tableEnd   = "<!-- end of what the processes have shown -->\n"
)

// TestMetrics: docs/metrics.md lists what real processes show after work of every kind.
func TestMetrics(t *testing.T) {
	settings := map[string]string{"diagnostics.automatic": "true"}
	c := cluster.Start(t, cluster.Options{Shipped: true, Settings: settings, Racks: []sim.Options{{
		RackID: "r", Compute: 1, PowerShelves: 1, Switches: 1, Seed: 1,
		// Slow enough that a second update meets the first.
		Timing: bmc.Timing{Task: 3 * time.Second, BMCOutage: 100 * time.Millisecond},
	}}})
	for _, sw := range c.Racks[0].Switches() {
		require.NoError(t, sw.Provision("earlier", c.Domain.Earlier, "nvue"))
	}
	s := &scene{Cluster: c, Client: c.Client(0), rack: c.Racks[0]}
	s.updateEachFamily(t)
	s.downloadEvidence(t)

	table := table(s.scrape(t))
	doc, err := os.ReadFile(metricsDoc)
	require.NoError(t, err)
	head, rest, found := strings.Cut(string(doc), tableBegin)
	require.True(t, found)
	shown, tail, found := strings.Cut(rest, tableEnd)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(metricsDoc, []byte(head+tableBegin+table+tableEnd+tail), 0o644))
		shown = table
	}
	require.Equal(t, shown, table, "go test ./test/deploy -run TestMetrics -update")
	requireNoneUnseen(t, table)
}

// updateEachFamily registers all nodes, reads them, and gives an agent of each family a job. One node is
// given a second one in vain, and a third one that is cancelled.
func (s *scene) updateEachFamily(t *testing.T) {
	ctx := within(t)
	_, err := s.CreateNodes(ctx, &rackmanager.CreateNodesRequest{Nodes: s.NodeSet(s.rack)})
	require.NoError(t, err)
	power, err := s.BatchGetPowerState(ctx, &rackmanager.BatchGetPowerStateRequest{Nodes: s.NodeSet(s.rack)})
	require.NoError(t, err)
	require.Equal(t, success, power.GetResponse().GetStatus(), "%v", power)
	s.WriteTrayPackage("tray.fwpkg", "9.9")
	req := &rackmanager.UpdateFirmwareRequest{RackId: "r", NodeId: "compute-0001", Filename: "tray.fwpkg", Activate: true}
	first, err := s.UpdateFirmware(ctx, req)
	require.NoError(t, err)
	require.Equal(t, success, first.GetStatus(), first.GetMessage())
	second, err := s.UpdateFirmware(ctx, req)
	require.NoError(t, err)
	require.NotEqual(t, success, second.GetStatus())
	third, err := s.UpdateFirmware(metadata.AppendToOutgoingContext(ctx, "rackbus-on-busy", "queue"), req)
	require.NoError(t, err)
	require.Equal(t, success, third.GetStatus(), third.GetMessage())
	_, err = s.Jobs.CancelJob(ctx, &rackbusv1.CancelJobRequest{JobId: third.GetJobId(), Mode: rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL})
	require.NoError(t, err)
	_, err = s.WaitJob(ctx, third.GetJobId())
	require.NoError(t, err)
	for _, id := range []string{first.GetJobId(), s.updateShelf(ctx, t), s.installImage(ctx, t)} {
		job, err := s.WaitJob(ctx, id)
		require.NoError(t, err)
		require.Equal(t, rackmanager.JobExecutionState_JOB_EXECUTION_STATE_COMPLETED, job.GetExecutionState(), "%v", job)
	}
}

// downloadEvidence examines all nodes, and takes the bundle of one.
func (s *scene) downloadEvidence(t *testing.T) {
	ctx := within(t)
	nodes := s.NodeSet(s.rack).GetNodes()
	req := &rackbusv1.StartNodeDiagnosticsRequest{}
	for _, n := range nodes {
		req.Nodes = append(req.Nodes, &rackbusv1.DiagnosedNode{RackId: n.GetRackId(), NodeId: n.GetNodeId()})
	}
	out, err := s.Jobs.StartNodeDiagnostics(ctx, req)
	require.NoError(t, err)
	_, err = s.WaitJob(ctx, out.GetJobId())
	require.NoError(t, err)
	ended, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: out.GetJobId(), IncludeChildren: true})
	require.NoError(t, err)
	require.Len(t, ended.GetChildren(), len(nodes))
	link, err := s.Jobs.GetEvidence(ctx, &rackbusv1.GetEvidenceRequest{JobId: ended.GetChildren()[0].GetJobId()})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE, link.GetStatus(), link.GetReason())
	source, err := certs.Load(certs.Files{CA: s.Site.Certificate("ca.crt")}, certs.Options{})
	require.NoError(t, err)
	trust, err := source.Client("127.0.0.1")
	require.NoError(t, err)
	body := get(ctx, t, s.reachable(link.GetUrl()), trust)
	n, err := io.Copy(io.Discard, body)
	require.NoError(t, err)
	require.Equal(t, link.GetSizeBytes(), n)
}

// reachable is the link with the address the certificate is for.
func (s *scene) reachable(link string) string {
	return s.ConsoleURL(0) + link[strings.Index(link, "/evidence/"):]
}

func get(ctx context.Context, t *testing.T, url string, config *tls.Config) io.Reader {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode, url)
	return resp.Body
}

// shownMetric is a metric with the processes that show it.
type shownMetric struct {
	kind, help string
	labels     map[string]bool
	processes  map[string]bool
}

// scrape reads /metrics of all processes. Of the metrics of the Go runtime it takes only those of general use.
func (s *scene) scrape(t *testing.T) map[string]*shownMetric {
	t.Helper()
	out := map[string]*shownMetric{}
	for _, p := range s.All() {
		if p.Role == cluster.RoleBroker {
			continue
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(get(within(t), t, s.MetricsURL(p), nil))
		require.NoError(t, err)
		for name, f := range families {
			if strings.HasPrefix(name, "go_") && name != "go_goroutines" || strings.HasPrefix(name, "promhttp_") {
				continue
			}
			m := out[name]
			if m == nil {
				m = &shownMetric{kind: strings.ToLower(f.GetType().String()), help: f.GetHelp(), labels: map[string]bool{}, processes: map[string]bool{}}
				out[name] = m
			}
			m.processes[p.Role] = true
			m.addLabels(f)
		}
	}
	return out
}

func (m *shownMetric) addLabels(f *dto.MetricFamily) {
	for _, sample := range f.GetMetric() {
		for _, l := range sample.GetLabel() {
			m.labels[l.GetName()] = true
		}
	}
}

// everyProcess is what stands in the table for all of them.
const everyProcess = "all"

func table(metrics map[string]*shownMetric) string {
	roles := map[string]bool{}
	for _, m := range metrics {
		maps.Copy(roles, m.processes)
	}
	var b strings.Builder
	b.WriteString("| Metric | Type | Labels | Processes | Meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m := metrics[name]
		processes := strings.Join(slices.Sorted(maps.Keys(m.processes)), ", ")
		if len(m.processes) == len(roles) {
			processes = everyProcess
		}
		labels := strings.Join(slices.Sorted(maps.Keys(m.labels)), "`, `")
		if labels != "" {
			labels = "`" + labels + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, m.kind, labels, processes, m.help)
	}
	return b.String()
}

// named finds the metrics that the source names.
var named = regexp.MustCompile(`Name:\s+"(rackbus_[a-z_]+)"`)

// requireNoneUnseen: a metric that the source has but no process has shown would be missing in the table.
func requireNoneUnseen(t *testing.T, table string) {
	t.Helper()
	for _, root := range []string{"../../pkg", "../../services"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, found := range named.FindAllSubmatch(source, -1) {
				require.Contains(t, table, "| `"+string(found[1])+"` |", path)
			}
			return err
		})
		require.NoError(t, err)
	}
}
