// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rackbus/rackbus/pkg/secret"
)

// FuzzBodies reads a body as everything a switch may answer. Whatever it sends,
// it is judged without a panic, within bounds, and without leaving the API.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`"rev_7"`, `7`, `{"7":{"state":"pending"}}`, noDiffBody, `{"id":"../../x"}`, `{"href":"/a/.."}`,
		`{"state":"applied_and_saved","transition":{"issue":[{"severity":"error","data":{"msg":"x"}}]}}`,
		`{"state":"action_error","percentage":"100%","issue":["Nothing to uninstall"],"detail":"reboot"}`,
		`{"state":{},"percentage":1e999,"issue":{"0":{"message":7}}}`,
		`{"current":"1","next":"nvos-1","partition1":{"build-id":"nvos-1"},"partition2":"nvos-2"}`,
		`{"valid-to":"2099-01-01T00:00:00Z","[installed]":[{"a":{}},"b",7]}`,
		`{"status":"ok","additional-info":"STOPPED","manager":{"operational":{"state":"active"}}}`,
		strings.Repeat("[", 200) + strings.Repeat("]", 200),
		`[]`, `null`, `"\ud800"`, ``, `<html>`, "\xff\xfe", `{"":{"":""}}`, `pl4nted`,
	} {
		f.Add([]byte(body))
	}
	c, err := New(Endpoint{Address: "192.0.2.1", Port: 443, Username: "u", Password: secret.New("pl4nted")}, Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close)
	f.Fuzz(func(t *testing.T, body []byte) {
		text := c.words(issueText(body))
		if len(text) > maxText+len("...") || strings.Contains(text, "pl4nted") {
			t.Fatalf("text %q", text)
		}
		raw := json.RawMessage(body)
		if id := revisionID(raw); id != "" {
			requireInside(t, revisionPath(id), string(id))
		}
		if id := actionID(raw); id != "" {
			requireInside(t, resource("action", string(id)), string(id))
		}
		s := judgeRevision("7", raw)
		if s.Verdict == RevisionApplied && !s.applied || s.Verdict > RevisionFailed {
			t.Fatalf("revision %+v", s)
		}
		for _, p := range []ActionPolicy{StrictActions(), ImageActions(), FirmwareActions(), EvidenceActions()} {
			a := p.judge(raw)
			if a.Percent < -1 || a.Percent > 100 || a.Verdict > ActionFailed {
				t.Fatalf("action %+v", a)
			}
		}
		image := imageState(raw)
		if partition, _ := image.UnusedPartition(); partition != "" && partition == image.CurrentPartition {
			t.Fatalf("image %+v", image)
		}
		certificate(raw)
		cluster(raw)
		appState(raw).Stopped()
		platform(raw)
		chassisLocation(raw)
		firmware(asDocument(raw))
		ListsFile(raw, "x")
	})
}

// requireInside allows only dot segments to be refused; everything else a switch
// may name is encoded.
func requireInside(t *testing.T, path, id string) {
	t.Helper()
	if insideAPI(path) || strings.ContainsFunc(id, control) {
		return
	}
	for part := range strings.SplitSeq(strings.ReplaceAll(id, `\`, "/"), "/") {
		if part == "." || part == ".." {
			return
		}
	}
	t.Fatalf("id %q makes path %q", id, path)
}
