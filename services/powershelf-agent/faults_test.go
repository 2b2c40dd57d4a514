// SPDX-License-Identifier: Apache-2.0

package powershelfagent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// faultCase is one way in which a shelf goes wrong, and what comes of it. Cases with an
// agent of their own have a rack of their own, too.
type faultCase struct {
	name  string
	model string
	knobs bmc.Knobs
	rules []faults.Rule
	agent func(*agenttest.AgentOptions)
	check func(*bench)
}

// faultRow is a kind of fault, as docs/hardware.md lists it.
type faultRow struct {
	name  string
	cases []faultCase
}

const (
	delta = "powershelf_gb300_delta"

	servicePath     = "/redfish/v1/UpdateService"
	taskPath        = "/redfish/v1/TaskService/Tasks/0"
	chassisPath     = "/redfish/v1/Chassis/powershelf"
	suppliesPath    = chassisPath + "/PowerSubsystem/PowerSupplies"
	deltaSupplyPath = "/redfish/v1/Chassis/chassis/PowerSubsystem/PowerSupplies"
)

// TestFaults is what shelves do wrong, a row for each kind of fault. The cases share an
// agent, each with a shelf of its own.
func TestFaults(t *testing.T) {
	rows := append(requestFaults(), updateFaults()...)
	counts := map[string]int{}
	for _, row := range rows {
		for _, c := range row.cases {
			if c.agent == nil {
				counts[c.shelf()]++
			}
		}
	}
	shelves := newShelf(t, func(o *sim.Options) {
		o.PowerShelves, o.NodeTypes = 0, []sim.NodeTypeCount{{Type: liteOn, Count: counts[liteOn]}, {Type: delta, Count: counts[delta]}}
	})
	next := map[string]int{delta: counts[liteOn]}
	for _, row := range rows {
		own := make([]*bench, len(row.cases))
		for i, c := range row.cases {
			if c.agent == nil {
				own[i] = shelves.at(next[c.shelf()])
				next[c.shelf()]++
			}
		}
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for i, c := range row.cases {
				t.Run(c.name, func(t *testing.T) { c.run(t, own[i]) })
			}
		})
	}
}

func (c faultCase) shelf() string {
	if c.model == "" {
		return liteOn
	}
	return c.model
}

func (c faultCase) run(t *testing.T, b *bench) {
	if c.agent != nil {
		b = newBench(t, of(c.shelf()))
		b.Start(c.agent)
	} else {
		t.Parallel()
		b = b.in(t)
	}
	b.knobs(func(k *bmc.Knobs) { *k = c.knobs })
	for _, rule := range c.rules {
		b.fault(rule)
	}
	c.check(b)
}

// at is the bench with another shelf of its rack.
func (b *bench) at(i int) *bench {
	other := *b
	other.shelf = b.rack.Devices()[i]
	other.node = b.target(other.shelf)
	return &other
}

// in is the bench in a subtest.
func (b *bench) in(t *testing.T) *bench {
	rig, other := *b.Rig, *b
	rig.T, other.Rig, other.t = t, &rig, t
	return &other
}

// fault adds a rule for the bench's shelf.
func (b *bench) fault(rule faults.Rule) {
	b.t.Helper()
	rule.Device = b.shelf.ID()
	_, err := b.rack.AddFault(rule)
	require.NoError(b.t, err)
}

// answers is a rule that answers requests in the device's stead.
func answers(method, path string, s faults.Status, times ...int) faults.Rule {
	r := faults.Rule{Selector: faults.Request(method, path), Action: faults.Action{Status: &s}}
	for _, n := range times {
		r.Remaining = n
	}
	return r
}

func merge(path, change string) faults.Rule {
	return faults.Rule{Selector: faults.Resource(path), Action: faults.Action{JSONMerge: json.RawMessage(change)}}
}

// update sends a controller image in a file of its own.
func (b *bench) update() agenttest.Job {
	b.t.Helper()
	if b.shelf.NodeType() == "POWERSHELF_GB300_DELTA" {
		return b.run(activated(b.archive("obmc_"+b.shelf.ID()+".tar", "OPENBMC", "1.9.9")))
	}
	return b.run(activated(b.archive("obmc_"+b.shelf.ID()+".tar", "OPENBMC", "r1.9.9")))
}

// installs expects that an update gets over the fault: one image, one reset, in force.
func installs(b *bench) {
	b.t.Helper()
	j := b.update()
	require.Equal(b.t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(b.t, b.taken(), 1)
	require.Len(b.t, b.requests("POST", "**/"+managerReset), 1)
	require.Equal(b.t, "matched", decode(b.t, j.ResultJSON)["post_activation_version_check"].(map[string]any)["status"])
	require.Equal(b.t, bmc.PowerOn, b.shelf.PowerState(), "power stays")
}

// taken are the images that the shelf took.
func (b *bench) taken() []reqlog.Entry {
	var out []reqlog.Entry
	for _, u := range b.rack.Uploads(b.shelf.ID()) {
		if u.Upload.Task != "" {
			out = append(out, u)
		}
	}
	return out
}

// ended is how an update ends badly.
type ended struct {
	code  job.FailureCode
	phase string
	text  string
	// sent is how many images were taken, resets how often the controller was told to restart.
	sent, resets int
}

func (e ended) check(b *bench) {
	b.t.Helper()
	j := b.update()
	require.Equal(b.t, job.StateFailed, j.State, j.Description)
	require.Equal(b.t, e.code, j.Failure.FailureCode, "%+v", j.Failure)
	require.Equal(b.t, e.phase, j.Failure.Phase, "%+v", j.Failure)
	require.Contains(b.t, j.Failure.Message, e.text)
	require.Len(b.t, b.taken(), e.sent)
	require.Len(b.t, b.requests("POST", "**/"+managerReset), e.resets)
	require.Equal(b.t, bmc.PowerOn, b.shelf.PowerState(), "power stays")
	require.NotContains(b.t, j.ResultJSON+j.Failure.Message, b.shelf.Password())
}

// refused expects that an operation is refused, and that nothing was switched.
func refused(op string, code redfish.ErrorCode, text string) func(*bench) {
	return func(b *bench) {
		b.t.Helper()
		reply := b.Ask(b.node, op, operation(redfish.PowerForceOff))
		require.Equal(b.t, string(code), reply.GetError().GetCode(), reply.GetError().GetMessage())
		require.Contains(b.t, reply.GetError().GetMessage(), text)
		require.Empty(b.t, reply.GetPowerState(), "no state is made up")
		require.Equal(b.t, bmc.PowerOn, b.shelf.PowerState())
	}
}

// reads expects a power state.
func reads(state string) func(*bench) {
	return func(b *bench) {
		b.t.Helper()
		reply := b.Ask(b.node, redfishagent.OpPowerGet)
		require.Nil(b.t, reply.GetError(), "%v", reply.GetError())
		require.Equal(b.t, state, reply.GetPowerState())
	}
}

// sentAbroad sends requests of a method and path to another host, and expects that
// nobody goes there.
func sentAbroad(method, path string, check func(*bench)) func(*bench) {
	return func(b *bench) {
		b.t.Helper()
		var asked atomic.Int32
		s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		b.t.Cleanup(s.Close)
		b.fault(faults.Rule{Selector: faults.Request(method, path), Action: faults.Action{Redirect: &faults.Redirect{To: s.URL + "/x"}}})
		check(b)
		require.Zero(b.t, asked.Load(), "credentials or an image went to another host")
	}
}

// requestFaults are faults of single requests.
func requestFaults() []faultRow {
	get, set := redfishagent.OpPowerGet, redfishagent.OpPowerSet
	return []faultRow{
		{"401", []faultCase{
			{name: "power read", rules: []faults.Rule{answers("", "", faults.Status{Code: 401})}, check: func(b *bench) {
				refused(get, redfish.CodeUnauthenticated, "HTTP 401")(b)
				require.Len(b.t, b.requests("", ""), 1, "who is refused does not go on asking")
			}},
			{name: "of a supply", rules: []faults.Rule{answers("GET", suppliesPath+"/2", faults.Status{Code: 401})}, check: refused(get, redfish.CodeUnauthenticated, "HTTP 401")},
			{name: "of a supply, Delta", model: delta, rules: []faults.Rule{answers("GET", deltaSupplyPath+"/2", faults.Status{Code: 401})},
				check: refused(get, redfish.CodeUnauthenticated, "HTTP 401")},
			{name: "in the poll", rules: []faults.Rule{answers("GET", taskPath, faults.Status{Code: 401})}, check: func(b *bench) {
				ended{code: job.FailureBMCAuthFailed, phase: "poll", text: "HTTP 401", sent: 1}.check(b)
				require.Len(b.t, b.requests("GET", taskPath), 1)
			}},
			{name: "in the activation", rules: []faults.Rule{answers("POST", "**/"+managerReset, faults.Status{Code: 401})},
				check: ended{code: job.FailureBMCAuthFailed, phase: "activation", text: "HTTP 401", sent: 1, resets: 1}.check},
		}},
		{"403", []faultCase{
			{name: "power set", rules: []faults.Rule{answers("POST", "**/Chassis.ForceOff", faults.Status{Code: 403})}, check: func(b *bench) {
				refused(set, redfish.CodeForbidden, "HTTP 403")(b)
				require.Len(b.t, b.requests("POST", ""), 1)
			}},
			{name: "password to be changed", knobs: bmc.Knobs{PasswordExpired: true},
				check: ended{code: job.FailureBMCAuthFailed, phase: "update", text: "The password has to be changed"}.check},
		}},
		{"503 with Retry-After", []faultCase{
			{name: "power read", rules: []faults.Rule{answers("GET", chassisPath, faults.Status{Code: 503, Headers: map[string]string{"Retry-After": "60"}})},
				check: refused(get, redfish.CodeUnavailable, "HTTP 503")},
			{name: "upload", rules: []faults.Rule{answers("POST", pushPath, faults.Status{Code: 503, Headers: map[string]string{"Retry-After": "1"}}, 1)}, check: func(b *bench) {
				installs(b)
				sent := b.requests("POST", pushPath)
				require.Len(b.t, sent, 2)
				require.GreaterOrEqual(b.t, sent[1].Time.Sub(sent[0].End()), time.Second)
			}},
		}},
		{"connection lost", []faultCase{
			{name: "power read", rules: []faults.Rule{{Selector: faults.Request("GET", chassisPath), Action: faults.Action{Cut: &faults.Cut{Bytes: 20}}}},
				check: refused(get, redfish.CodeUnavailable, "read answer")},
			{name: "task, once", rules: []faults.Rule{{Selector: faults.Request("GET", taskPath), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{}}}}, check: installs},
		}},
		{"malformed answer", []faultCase{
			{name: "HTML", rules: []faults.Rule{{Selector: faults.Request("GET", chassisPath), Action: faults.Action{Replace: json.RawMessage(`"<html>busy</html>"`)}}},
				check: refused(get, redfish.CodeInvalidResponse, "read power state")},
			{name: "half a task, once", rules: []faults.Rule{{Selector: faults.Request("GET", taskPath), Remaining: 1, Action: faults.Action{Malformed: true}}}, check: installs},
		}},
		{"redirect", []faultCase{
			{name: "upload on the same host", rules: []faults.Rule{{Selector: faults.Request("POST", pushPath), Action: faults.Action{Redirect: &faults.Redirect{}}}}, check: installs},
			{name: "upload on another host", check: sentAbroad("POST", pushPath, ended{code: job.FailureBMCInvalidResponse, phase: "update", text: "redirect refused"}.check)},
			{name: "read on another host", check: sentAbroad("GET", chassisPath, refused(get, redfish.CodeInvalidResponse, "redirect refused"))},
		}},
		{"link off the device", []faultCase{
			{name: "action", rules: []faults.Rule{merge(chassisPath, `{"Actions":{"#Chassis.ForceOff":{"target":"https://evil.example/x"}}}`)}, check: func(b *bench) {
				refused(set, redfish.CodeInvalidArgument, "outside its own origin")(b)
				require.Empty(b.t, b.requests("POST", ""))
			}},
			{name: "push URI", rules: []faults.Rule{merge(servicePath, `{"HttpPushUri":"https://evil.example/x"}`)}, check: func(b *bench) {
				installs(b)
				require.Len(b.t, b.requests("POST", pushPath), 1, "its usual place is used")
			}},
		}},
		{"two chassis", []faultCase{{name: "the first is the shelf", rules: []faults.Rule{
			merge("/redfish/v1/Chassis", `{"Members":[{"@odata.id":"/redfish/v1/Chassis/other"},{"@odata.id":"`+chassisPath+`"},{"@odata.id":"`+chassisPath+`_1"}]}`),
		}, check: func(b *bench) {
			reads("ON")(b)
			reply := b.Ask(b.node, set, operation(redfish.PowerForceOff))
			require.Nil(b.t, reply.GetError(), "%v", reply.GetError())
			require.Equal(b.t, bmc.PowerOff, b.shelf.PowerState())
			require.Empty(b.t, b.requests("", chassisPath+"_1"))
		}}}},
		{"supplies disagree", supplyFaults()},
	}
}

// supplyFaults are supplies that do not all say the same.
func supplyFaults() (out []faultCase) {
	for _, s := range []struct {
		model, name, path string
		first             int
		state             func(value string) string
	}{
		{liteOn, "LiteOn", suppliesPath, 0, func(v string) string { return `{"PowerState":` + v + `}` }},
		{delta, "Delta", deltaSupplyPath, 1, func(v string) string {
			return `{"Oem":{"deltaenergysystems":{"Power":` + v + `}}}`
		}},
	} {
		one := fmt.Sprintf("%s/%d", s.path, s.first+3)
		out = append(out,
			faultCase{name: "one off, " + s.name, model: s.model, rules: []faults.Rule{merge(one, s.state(`"Off"`))}, check: reads("OFF")},
			faultCase{name: "one off, one unreadable, " + s.name, model: s.model, rules: []faults.Rule{
				answers("GET", fmt.Sprintf("%s/%d", s.path, s.first), faults.Status{Code: 500}), merge(one, s.state(`"Off"`))}, check: reads("OFF")},
			faultCase{name: "one null, " + s.name, model: s.model, rules: []faults.Rule{merge(one, s.state("null"))}, check: reads("ON")},
			faultCase{name: "one unreadable, " + s.name, model: s.model, rules: []faults.Rule{answers("GET", one, faults.Status{Code: 500})}, check: reads("ON")},
			faultCase{name: "all null, " + s.name, model: s.model, rules: []faults.Rule{merge(s.path+"/*", s.state("null"))}, check: reads("UNKNOWN")},
			faultCase{name: "all unreadable, " + s.name, model: s.model, rules: []faults.Rule{answers("GET", s.path+"/*", faults.Status{Code: 500})}, check: reads("UNKNOWN")},
			faultCase{name: "none listed, " + s.name, model: s.model, rules: []faults.Rule{answers("GET", s.path, faults.Status{Code: 503})}, check: reads("UNKNOWN")},
		)
	}
	return out
}

// updateFaults are faults of the firmware, its tasks and its activation.
func updateFaults() []faultRow {
	badTask := func(name string, end bmc.TaskEnd) faultCase {
		end.Messages = []bmc.Message{{ID: "Update.1.0.Judged", Text: "The update had errors: firmware update had errors.", Severity: "Warning", Resolution: "Send another image."}}
		return faultCase{name: name, knobs: bmc.Knobs{TaskEnd: &end}, check: func(b *bench) {
			ended{code: job.FailureTaskException, phase: "poll", text: "Resolution: Send another image.", sent: 1}.check(b)
		}}
	}
	restart := func(r bmc.UpdateRestart) bmc.Knobs { return bmc.Knobs{RestartDuringUpdate: &r} }
	patch := func(name string, k bmc.Knobs) faultCase {
		return faultCase{name: name, knobs: k, check: func(b *bench) {
			installs(b)
			require.LessOrEqual(b.t, len(b.requests("PATCH", servicePath)), 2)
			require.Equal(b.t, "OnReset", b.shelf.ApplyTime())
		}}
	}
	reset := func(p bmc.ResetParameters) faultCase {
		return faultCase{name: "parameters " + string(p), knobs: bmc.Knobs{ResetParameters: p}, check: func(b *bench) {
			j := b.update()
			require.Equal(b.t, job.StateCompleted, j.State, "%+v", j.Failure)
			require.Equal(b.t, "r1.9.9", b.controller())
		}}
	}
	return []faultRow{
		{"task ends badly", []faultCase{
			badTask("exception", bmc.TaskEnd{State: "Exception", Status: "Critical"}),
			badTask("killed", bmc.TaskEnd{State: "Killed", Status: "Critical"}),
			badTask("cancelled before its hand-off", bmc.TaskEnd{State: "Cancelled", Status: "Warning", Percent: 40}),
			badTask("completed with a warning", bmc.TaskEnd{State: "Completed", Status: "Warning"}),
			{name: "stuck", knobs: bmc.Knobs{TaskStuckAt: 99}, agent: func(o *agenttest.AgentOptions) { o.Timing.TaskPoll.Limit = 200 * time.Millisecond },
				check: ended{code: job.FailureTaskTimeout, phase: "poll", text: "exceeded timeout", sent: 1}.check},
		}},
		{"controller restarts", []faultCase{
			{name: "and goes on", knobs: restart(bmc.UpdateRestart{}), check: installs},
			{name: "and forgets its task, new version", knobs: restart(bmc.UpdateRestart{LoseTask: true, Outcome: bmc.RestartActivates}), check: installs},
			{name: "and forgets its task, old version", knobs: restart(bmc.UpdateRestart{LoseTask: true, Outcome: bmc.RestartAbandons}),
				check: ended{code: job.FailureTaskLost, phase: "poll", text: "the old version is still installed", sent: 1}.check},
		}},
		{"update service off", []faultCase{{name: "nothing is sent", knobs: bmc.Knobs{ServiceDisabled: true},
			check: ended{code: job.FailurePreconditionFailed, phase: "update", text: "update service is disabled"}.check}}},
		{"patch refused", []faultCase{
			patch("needs a tag", bmc.Knobs{IfMatch: bmc.IfMatchRequired}), patch("412 with a tag", bmc.Knobs{IfMatch: bmc.IfMatchRefused}),
			patch("weak tag", bmc.Knobs{IfMatch: bmc.IfMatchWeak}), patch("weak tag without its prefix", bmc.Knobs{IfMatch: bmc.IfMatchStrong}),
			patch("empty tag", bmc.Knobs{IfMatch: bmc.IfMatchEmpty}),
			{name: "400 because nothing changes", rules: []faults.Rule{answers("PATCH", servicePath, faults.Status{Code: 400, MessageID: "Base.1.18.1.PatchValueAlreadyExists"})}, check: func(b *bench) {
				require.Equal(b.t, job.StateCompleted, b.update().State)
				require.Len(b.t, b.taken(), 1)
			}},
			{name: "400 for another reason", rules: []faults.Rule{answers("PATCH", servicePath, faults.Status{Code: 400, MessageID: "Base.1.18.1.PropertyValueNotInList"})},
				check: ended{code: job.FailureUploadFailed, phase: "update", text: "PropertyValueNotInList"}.check},
		}},
		{"manager reset", []faultCase{
			reset(bmc.ResetParametersInfo), reset(bmc.ResetParametersUntold), reset(bmc.ResetParametersNone),
			{name: "without an outage", knobs: bmc.Knobs{SilentManagerReset: true}, check: installs},
			{name: "without an outage or a reset time", knobs: bmc.Knobs{SilentManagerReset: true, HideLastReset: true}, check: installs},
			{name: "taken and ignored", knobs: bmc.Knobs{ManagerResetIgnored: true}, agent: func(o *agenttest.AgentOptions) { o.Timing.Redfish.ManagerLimit = 400 * time.Millisecond },
				check: ended{code: job.FailureActivationFailed, phase: "activation", text: "nothing shows that the manager has restarted", sent: 1, resets: 1}.check},
			{name: "taken and ignored, without a reset time", knobs: bmc.Knobs{ManagerResetIgnored: true, HideLastReset: true},
				check: ended{code: job.FailureVersionMismatch, phase: "post_activation_version_check", text: "expected r1.9.9", sent: 1, resets: 1}.check},
		}},
	}
}
