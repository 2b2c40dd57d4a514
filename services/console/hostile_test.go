// SPDX-License-Identifier: Apache-2.0

package console

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

// TestHostileTextsStayTexts puts mark-up, addresses with a scheme and odd names into
// everything that callers and devices choose, and looks at every page and at patches.
func TestHostileTextsStayTexts(t *testing.T) {
	const evil = `"><img src=x onerror=alert(1)>'` + "\u202e<script>alert(2)</script>"
	rack, tray := `r/1 <b>&"'`, `..%2f "><svg onload=alert(3)>`
	s := newSite(t)
	j := update("j1", tray, failed, 40)
	j.RackId, j.Name, j.StateDescription, j.Agent = rack, evil, evil, evil
	j.ResultJson = evil
	j.Failure = &rackbusv1.JobFailure{FailureCode: evil, Message: evil, Phase: evil, Device: &rackbusv1.DeviceAnswer{
		MessageId: evil, Message: evil, Resolution: evil, Severity: evil,
	}}
	j.Cancel = &rackbusv1.JobCancel{RequestedBy: evil, Reason: evil, Note: evil, Mode: rackbusv1.CancelMode_CANCEL_MODE_GRACEFUL}
	j.NodeDiagnostics = &rackbusv1.NodeDiagnostics{FailureSignature: evil, Summary: evil, Advice: evil}
	j.Stages = []*rackbusv1.JobStage{{Name: evil, Description: evil, Message: evil}}
	s.put(j)
	s.events = []*rackbusv1.JobHistoryEntry{{At: timestamppb.New(epoch), Kind: evil, Description: evil, Agent: evil}}
	s.evidence = &rackbusv1.GetEvidenceResponse{
		Status: rackbusv1.EvidenceStatus_EVIDENCE_STATUS_AVAILABLE, Url: "javascript:alert(4)", Filename: evil, JobId: "j1",
	}
	rackPath := "/racks/" + url.PathEscape(rack)
	nodePath := rackPath + "/nodes/" + url.PathEscape(tray)
	for _, path := range []string{"/", "/?q=%22%3E%3Cimg%20src=x%3E", rackPath, nodePath, "/jobs", "/jobs?rack=%22%3E%3Cimg%20src=x%3E",
		"/jobs/j1", "/jobs/j1/evidence", "/jobs/j1/do/diagnose", "/nothing/%3Cimg%20src=x%3E"} {
		resp, body := s.get(path)
		if !strings.HasPrefix(path, "/nothing") {
			require.Equal(t, http.StatusOK, resp.StatusCode, path)
		}
		for _, mark := range []string{"<img", "<script>", "<svg onload", `href="javascript:`} {
			require.NotContains(t, body, mark, path)
		}
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "script-src 'self'")
	}
	require.Contains(t, html.UnescapeString(s.page(rackPath)), `href="`+nodePath+`"`, "links lead there")
}
