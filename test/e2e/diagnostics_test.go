// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/test/cluster"
)

// diagnoseTray looks into the update that has failed just before: the agent examines the tray and recognises why, and
// the link to its bundle holds beyond the death of the API that gave it out, but not when it is changed.
func (s *scene) diagnoseTray(t *testing.T) {
	ctx := within(t)
	list, err := s.Jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{Filter: &rackbusv1.JobFilter{
		States: []rackbusv1.JobState{rackbusv1.JobState_JOB_STATE_FAILED}, RackId: "gb200", NodeId: "compute-0004",
	}, PageSize: 1})
	require.NoError(t, err)
	require.Len(t, list.GetJobs(), 1)
	failed := list.GetJobs()[0]
	started, err := s.Jobs.StartNodeDiagnostics(ctx, &rackbusv1.StartNodeDiagnosticsRequest{AboutJobId: failed.GetParentJobId()})
	require.NoError(t, err)
	require.Empty(t, started.GetRefusedNodes())
	_, err = s.WaitJob(ctx, started.GetJobId())
	require.NoError(t, err)
	got, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: started.GetJobId(), IncludeChildren: true})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.JobState_JOB_STATE_COMPLETED, got.GetJob().GetState(), "%v", got)
	require.Nil(t, got.GetJob().GetNodeDiagnostics())
	require.Len(t, got.GetChildren(), 1)
	found := got.GetChildren()[0].GetNodeDiagnostics()
	require.Equal(t, "FIRMWARE_VERIFICATION_FAILED", found.GetFailureSignature(), "%v", found)
	require.Equal(t, failed.GetJobId(), got.GetChildren()[0].GetAboutJobId())

	evidence, err := s.Jobs.GetEvidence(ctx, &rackbusv1.GetEvidenceRequest{JobId: failed.GetJobId()})
	require.NoError(t, err)
	require.Equal(t, rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE, evidence.GetStatus(), evidence.GetReason())
	api := s.Processes(cluster.RoleAPI)[0]
	api.Kill()
	require.NoError(t, api.Start())
	require.NoError(t, api.WaitReady(ctx))

	browser := s.stranger(t)
	get := func(url string) (int, []byte) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := browser.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, body
	}
	status, bundle := get(evidence.GetUrl())
	require.Equal(t, http.StatusOK, status)
	sum := sha256.Sum256(bundle)
	require.Equal(t, evidence.GetSha256(), sum[:])
	names := entries(t, bundle)
	require.Equal(t, "manifest.json", names[len(names)-1])
	require.Contains(t, names, "history.json")
	require.Contains(t, names, "tasks.json")

	for _, changed := range []string{
		evidence.GetUrl()[:len(evidence.GetUrl())-4],
		strings.Replace(evidence.GetUrl(), evidence.GetJobId(), failed.GetJobId(), 1),
		strings.Replace(evidence.GetUrl(), "expires=1", "expires=2", 1),
	} {
		status, _ = get(changed)
		require.Equal(t, http.StatusForbidden, status, changed)
	}
	require.Eventually(t, func() bool {
		_, err := s.Jobs.GetJob(ctx, &rackbusv1.GetJobRequest{JobId: failed.GetJobId()})
		return err == nil
	}, patience, patience/1000, "the client finds the new API")
}

// stranger is a browser that trusts the installation and has no certificate.
func (s *scene) stranger(t *testing.T) *http.Client {
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(s.Certificate("ca.crt"))
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(pem))
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// entries are the names in a bundle, in order.
func entries(t *testing.T, bundle []byte) (names []string) {
	gz, err := gzip.NewReader(bytes.NewReader(bundle))
	require.NoError(t, err)
	for files := tar.NewReader(gz); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		names = append(names, h.Name)
	}
}
