// SPDX-License-Identifier: Apache-2.0

package nvswitch_test

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/nvswitch"
	"github.com/rackbus/rackbus/sim/reqlog"
)

func TestEveryReadAnswers(t *testing.T) {
	s := start(t, nvswitch.Options{Model: nvswitch.VRNVL72})
	c := newClient(t, s)
	for _, path := range []string{
		"/system", "/system/image", "/system/image/files", "/system/gnmi-server", "/system/gnmi-server/mtls", "/system/api",
		"/system/api/mtls", "/system/security/spdm?rev=operational", "/system/security/spdm/ERoT_BMC_0/measurements",
		"/system/security/spdm/ERoT_BMC_0/certificates", "/cluster", "/cluster/apps", "/cluster/apps/nmx-controller",
		"/cluster/apps/nmx-telemetry/manager", "/cluster/apps/nmx-controller/manager/certificate",
		"/cluster/apps/nmx-controller/manager/ca-certificate", "/cluster/apps/nmx-controller/manager/encryption",
		"/cluster/node/primary/server?rev=applied", "/cluster/node/secondary/server", "/platform", "/platform/chassis-location",
		"/platform/firmware", "/platform/firmware/BMC", "/platform/firmware/CPLD1/files", "/platform/firmware/ASIC",
		"/platform/firmware/files",
	} {
		require.Equal(t, http.StatusOK, c.get(path).status, path)
	}
	require.Empty(t, s.Requests(reqlog.Filter{Writes: true}))
	require.Len(t, s.Requests(reqlog.Filter{Protocol: reqlog.NVUE}), 26)
	require.Equal(t, http.StatusNotFound, c.get("/nothing").status)
	require.Equal(t, http.StatusNotFound, c.get("/cluster/apps/other").status)
	require.Equal(t, "nvos-25.02.2000", c.get("/system/image").get("partition1", "build-id"))
	require.Equal(t, "n/a", c.get("/cluster").get("nmxc-conn"))
	c.pass = "wrong"
	require.Equal(t, http.StatusUnauthorized, c.status())
}

func TestRevision(t *testing.T) {
	s := start(t, nvswitch.Options{Knobs: nvswitch.Knobs{ApplyPolls: 2}})
	c := newClient(t, s)
	patch := map[string]obj{"/cluster": {"state": "enabled"}}
	id := c.revision(patch)
	require.Equal(t, "pending", c.get("/revision/"+id).get(id, "state"))
	require.Equal(t, "disabled", c.get("/cluster").get("state"))
	require.Equal(t, "apply", c.startApply(id).get(id, "state"))
	require.Equal(t, http.StatusConflict, c.startApply(id).status)
	require.Equal(t, "applied", c.settle(id).get(id, "state"))
	require.Equal(t, "enabled", c.get("/cluster").get("state"))
	require.Equal(t, "disabled", s.SavedConfig("/cluster/state"))

	id = c.revision(patch)
	c.startApply(id)
	last := c.settle(id)
	require.Equal(t, "failed", last.get(id, "state"))
	require.Equal(t, "config apply executed with no config diff", last.get(id, "transition", "issue", "0", "data", "message"))
	require.Equal(t, http.StatusOK, c.do(http.MethodPatch, "/revision/applied", obj{"state": "save"}).status)
	require.Equal(t, "enabled", s.SavedConfig("/cluster/state"))
	require.Equal(t, http.StatusOK, c.do(http.MethodDelete, "/revision/"+id, nil).status)
	require.Equal(t, http.StatusNotFound, c.get("/revision/"+id).status)
	require.Equal(t, http.StatusNotFound, c.do(http.MethodPatch, "/cluster?rev=99", patch["/cluster"]).status)
}

func TestRevisionFormsAndRules(t *testing.T) {
	s := start(t, nvswitch.Options{})
	c := newClient(t, s)
	s.SetKnobs(nvswitch.Knobs{RevisionForm: nvswitch.RevisionString})
	require.IsType(t, "", c.do(http.MethodPost, "/revision", obj{}).doc)
	s.SetKnobs(nvswitch.Knobs{RevisionForm: nvswitch.RevisionNumber})
	require.IsType(t, float64(0), c.do(http.MethodPost, "/revision", obj{}).doc)
	s.SetKnobs(nvswitch.Knobs{RevisionForm: nvswitch.RevisionFlat})
	require.Equal(t, "pending", c.do(http.MethodPost, "/revision", obj{}).get("state"))

	s.SetKnobs(nvswitch.Knobs{RevisionDone: "applied_and_saved"})
	require.Equal(t, "applied_and_saved", c.change(map[string]obj{"/cluster": {"state": "enabled"}}))
	require.Equal(t, "enabled", s.SavedConfig("/cluster/state"))

	s.SetKnobs(nvswitch.Knobs{Revisions: []nvswitch.RevisionRule{{Path: "/system/aaa/**", State: "invalid", Issue: "no", Remaining: 1}}})
	user := map[string]obj{"/system/aaa/user/bob": {"password": base64.StdEncoding.EncodeToString([]byte("pw1"))}}
	require.Equal(t, "applied", c.change(map[string]obj{"/cluster": {"state": "disabled"}}))
	require.Equal(t, "invalid", c.change(user))
	require.Empty(t, s.UserPassword("bob"))
	require.Equal(t, "applied", c.change(user))
	require.Equal(t, "pw1", s.UserPassword("bob"))
	c.user, c.pass = "bob", "pw1"
	require.Equal(t, http.StatusOK, c.status())
}

func TestClusterKeepsItsServers(t *testing.T) {
	s := start(t, nvswitch.Options{})
	c := newClient(t, s)
	require.Equal(t, "applied", c.change(map[string]obj{
		"/cluster": {"state": "enabled"}, "/cluster/node/primary/server": {"192.0.2.1": obj{}, "192.0.2.2": obj{}},
	}))
	require.Equal(t, []string{"192.0.2.1", "192.0.2.2"}, s.Servers("primary"))
	require.Equal(t, "invalid", c.change(map[string]obj{"/cluster": {"state": "disabled"}}))

	id := c.revision(nil)
	require.Equal(t, http.StatusOK, c.do(http.MethodDelete, "/cluster/node/primary?rev="+id, nil).status)
	require.Empty(t, c.get("/cluster/node/primary/server?rev="+id).doc)
	require.Len(t, c.get("/cluster/node/primary/server?rev=applied").doc, 2)
	c.startApply(id)
	require.Equal(t, "applied", c.settle(id).get(id, "state"))
	require.Equal(t, "applied", c.change(map[string]obj{"/cluster": {"state": "disabled"}}))
	require.Equal(t, "stopped", c.get("/cluster/apps/nmx-controller").get("status"))
	require.Equal(t, "failed", c.change(map[string]obj{"/cluster": {"state": "disabled"}}))
}

func TestPasswordHandOff(t *testing.T) {
	timing := quick()
	timing.Apply = 60 * time.Millisecond
	s := start(t, nvswitch.Options{Timing: timing})
	old, fresh := newClient(t, s), newClient(t, s)
	fresh.pass = "other"
	id := old.revision(map[string]obj{"/system/aaa/user/admin": {"password": base64.StdEncoding.EncodeToString([]byte("other"))}})
	old.startApply(id)
	require.Equal(t, http.StatusUnauthorized, fresh.status())
	require.Equal(t, http.StatusOK, old.status())
	fresh.awaitStatus(http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, old.status())
	s.Reboot()
	old.awaitStatus(http.StatusOK) // nothing was saved
}

func TestActionRules(t *testing.T) {
	s := start(t, nvswitch.Options{Knobs: nvswitch.Knobs{Actions: []nvswitch.ActionRule{
		{Resource: "/cluster/apps/*/manager", Verb: "@update", Contains: `"disabled"`, NoEffect: true, Script: []json.RawMessage{
			json.RawMessage(`{"state":"start"}`), json.RawMessage(`{"state":"action_failed","detail":"no"}`),
		}},
		{Verb: "@uninstall", Missing: true, Remaining: 1},
		{Verb: "@power-cycle", NoID: true, NoEffect: true},
	}}})
	c := newClient(t, s)
	const manager = "/cluster/apps/nmx-controller/manager"
	require.Equal(t, "action_success", c.perform(manager, "@update", obj{"state": "enabled"}))
	id := c.act(manager, "@update", obj{"state": "disabled"})
	require.Equal(t, "start", c.get("/action/"+id).get("state"))
	require.Equal(t, "action_failed", c.get("/action/"+id).get("state"))
	require.Equal(t, "action_failed", c.get("/action/"+id).get("state"))
	require.Equal(t, "enabled", s.App("nmx-controller").Manager)
	require.Equal(t, http.StatusNotFound, c.get("/action/"+c.act("/system/image", "@uninstall", obj{"force": true})).status)
	last := c.follow(c.act("/system/image", "@uninstall", obj{"force": true}))
	require.Equal(t, "action_error", last.get("state"))
	require.Contains(t, last.get("issue").([]any)[0].(obj)["message"], "Nothing to uninstall")
	require.Equal(t, response{http.StatusOK, obj{}}, c.do(http.MethodPost, "/system", obj{"@power-cycle": obj{"state": "start"}}))
	require.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, "/system", obj{"@explode": obj{"state": "start"}}).status)
	require.Equal(t, "@update", s.Requests(reqlog.Filter{Writes: true})[0].Verb)
}

func TestFaultRules(t *testing.T) {
	rules := &faults.Set{}
	s := start(t, nvswitch.Options{Faults: rules})
	c := newClient(t, s)
	_, err := rules.Add(faults.Rule{
		Selector: faults.Request("", "/nvue_v1/system"), Action: faults.Action{Status: &faults.Status{Code: 503}}, Remaining: 1,
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, c.status())
	require.Equal(t, http.StatusOK, c.status())
	id, err := rules.Add(faults.Rule{Action: faults.Action{Refuse: true}})
	require.NoError(t, err)
	s.Reconcile()
	c.http.CloseIdleConnections()
	_, err = net.DialTimeout("tcp", s.Addr("nvue"), patience)
	require.ErrorContains(t, err, "refused")
	rules.Remove(id)
	s.Reconcile()
	require.Equal(t, http.StatusOK, c.status())

	s.SetKnobs(nvswitch.Knobs{Garbage: []string{"nvue"}, Refuse: []string{"ssh"}})
	_, err = tls.Dial("tcp", s.Addr("nvue"), &tls.Config{InsecureSkipVerify: true})
	require.ErrorAs(t, err, new(tls.RecordHeaderError))
	_, err = net.DialTimeout("tcp", s.Addr("ssh"), patience)
	require.ErrorContains(t, err, "refused")
}

func TestAttestation(t *testing.T) {
	s := start(t, nvswitch.Options{Knobs: nvswitch.Knobs{EmptyEvidence: []string{"ERoT_FPGA_0"}}})
	c := newClient(t, s)
	const spdm = "/system/security/spdm"
	require.Len(t, c.get(spdm+"?rev=operational").doc, 2)
	nonce := "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	for _, component := range []string{"ERoT_BMC_0", "ERoT_FPGA_0"} {
		require.Equal(t, "action_success", c.perform(spdm+"/"+component, "@generate", obj{"nonce": nonce}))
	}
	require.Equal(t, nvswitch.Measurements("ERoT_BMC_0", nonce), c.get(spdm+"/ERoT_BMC_0/measurements").get("signed-measurements"))
	require.NotEmpty(t, c.get(spdm+"/ERoT_BMC_0/certificates").get("chain"))
	require.Empty(t, c.get(spdm+"/ERoT_FPGA_0/measurements").doc)
	require.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, spdm+"/ERoT_BMC_0", obj{"@generate": obj{"state": "start", "parameters": obj{"nonce": "aa"}}}).status)
}
