// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/pkg/redfishagent"
	"github.com/rackbus/rackbus/pkg/redfishagent/agenttest"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/faults"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// faultCase is one way in which a tray goes wrong, and what comes of it. Cases with an
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
	gb200Tray = "compute_gb200_nvidia"
	gb300Tray = "compute_gb300_nvidia"

	systemPath  = "/redfish/v1/Systems/System_0"
	servicePath = "/redfish/v1/UpdateService"
	taskPath    = "/redfish/v1/TaskService/Tasks/0"
	pushPath    = servicePath + "/update-multipart"
)

// TestFaults is what trays do wrong, a row for each kind of fault. The cases share an
// agent, each with a tray of its own.
func TestFaults(t *testing.T) {
	rows := append(requestFaults(), updateFaults()...)
	counts := map[string]int{}
	for _, row := range rows {
		for _, c := range row.cases {
			if c.agent == nil {
				counts[c.tray()]++
			}
		}
	}
	trays := newTray(t, func(o *sim.Options) {
		o.Compute, o.NodeTypes = 0, []sim.NodeTypeCount{{Type: gb200Tray, Count: counts[gb200Tray]}, {Type: gb300Tray, Count: counts[gb300Tray]}}
	})
	next := map[string]int{gb300Tray: counts[gb200Tray]}
	for _, row := range rows {
		own := make([]*bench, len(row.cases))
		for i, c := range row.cases {
			if c.agent == nil {
				own[i] = trays.at(next[c.tray()])
				next[c.tray()]++
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

func (c faultCase) tray() string {
	if c.model == "" {
		return gb200Tray
	}
	return c.model
}

func (c faultCase) run(t *testing.T, b *bench) {
	if c.agent != nil {
		b = newBench(t, of(c.tray()))
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

// at is the bench with another tray of its rack.
func (b *bench) at(i int) *bench {
	other := *b
	other.tray = b.rack.Devices()[i]
	other.node = b.target(other.tray)
	return &other
}

// in is the bench in a subtest.
func (b *bench) in(t *testing.T) *bench {
	rig, other := *b.Rig, *b
	rig.T, other.Rig, other.t = t, &rig, t
	return &other
}

// fault adds a rule for the bench's tray.
func (b *bench) fault(rule faults.Rule) {
	b.t.Helper()
	rule.Device = b.tray.ID()
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

func replace(method, path, body string, times ...int) faults.Rule {
	r := faults.Rule{Selector: faults.Request(method, path), Action: faults.Action{Replace: json.RawMessage(body)}}
	for _, n := range times {
		r.Remaining = n
	}
	return r
}

// trayPackage is a package for the tray's BMC, in a file of its own.
func (b *bench) trayPackage() *rackbusv1.FirmwareUpdateTarget {
	b.t.Helper()
	return b.pldm("nvfw_P4972_"+b.tray.ID()+".fwpkg", "99.01", "BMC")
}

// refused expects that an operation is refused with a code and a text, and that the
// tray was asked so often.
func refused(op string, code redfish.ErrorCode, text string, requests int) func(*bench) {
	return func(b *bench) {
		b.t.Helper()
		reply := b.Ask(b.node, op, operation(redfish.PowerForceOff))
		require.Equal(b.t, string(code), reply.GetError().GetCode(), reply.GetError().GetMessage())
		require.Contains(b.t, reply.GetError().GetMessage()+" "+reply.GetError().GetMessageId(), text)
		// A request that the agent has given up is listed once the tray notices.
		ctx, cancel := context.WithTimeout(b.t.Context(), agenttest.Patience)
		defer cancel()
		asked, err := b.rack.WaitRequests(ctx, b.tray.ID(), reqlog.Filter{}, requests)
		require.NoError(b.t, err)
		require.Len(b.t, asked, requests)
		require.Equal(b.t, bmc.PowerOn, b.tray.PowerState())
		require.Empty(b.t, reply.GetPowerState(), "no state is made up")
	}
}

// reads expects that the power state is read as what it is.
func reads(state string) func(*bench) {
	return func(b *bench) {
		b.t.Helper()
		reply := b.Ask(b.node, redfishagent.OpPowerGet)
		require.Nil(b.t, reply.GetError(), "%v", reply.GetError())
		require.Equal(b.t, state, reply.GetPowerState())
	}
}

// ended is how an update ends badly.
type ended struct {
	code  job.FailureCode
	phase string
	text  string
	// sent is how many images were taken, aux how many AUX cycles were asked for.
	sent, aux int
	// activate asks for the activation.
	activate bool
}

func (e ended) check(b *bench) {
	b.t.Helper()
	u := update(b.trayPackage())
	u.Activate = e.activate
	e.of(b, b.run(u))
}

func (e ended) of(b *bench, j agenttest.Job) {
	b.t.Helper()
	require.Equal(b.t, job.StateFailed, j.State, j.Description)
	require.Equal(b.t, e.code, j.Failure.FailureCode, "%+v", j.Failure)
	require.Equal(b.t, e.phase, j.Failure.Phase, "%+v", j.Failure)
	require.Contains(b.t, j.Failure.Message, e.text)
	require.Len(b.t, b.uploads(), e.sent)
	require.Equal(b.t, e.aux, b.posts(auxReset))
	require.NotContains(b.t, j.ResultJSON+j.Failure.Message, b.tray.Password())
}

// installs expects that an update gets over the fault: one image, in force.
func installs(b *bench) {
	b.t.Helper()
	j := b.run(activated(b.trayPackage()))
	require.Equal(b.t, job.StateCompleted, j.State, "%+v", j.Failure)
	require.Len(b.t, b.uploads(), 1)
	require.Equal(b.t, 1, b.posts(auxReset))
	require.Equal(b.t, "99.01", b.tray.Version("FW_BMC_0"))
	require.Equal(b.t, "matched", decode(b.t, j.ResultJSON)["post_activation_version_check"].(map[string]any)["status"])
}

// count is how often a resource was asked for.
func (b *bench) count(method, path string) int {
	return len(b.rack.Requests(b.tray.ID(), reqlog.Filter{Method: method, Path: path}))
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
	const html = `"<html>busy</html>"`
	get, set, list := redfishagent.OpPowerGet, redfishagent.OpPowerSet, redfishagent.OpFirmwareInventory
	full := faults.Status{Code: 503, MessageID: "Base.1.18.1.SessionLimitExceeded", Message: "No session is left."}
	alike := full
	alike.Code = 400
	impatient := func(o *agenttest.AgentOptions) {
		o.Timing.Redfish.Request, o.Timing.Redfish.Collection = time.Second, time.Second
		o.Timing.Redfish.ReadyLimit = 1500 * time.Millisecond
	}
	slow := func(path string) []faults.Rule {
		return []faults.Rule{{Selector: faults.Request("GET", path), Action: faults.Action{Latency: &faults.Latency{Mean: time.Minute}}}}
	}
	return []faultRow{
		{"401", []faultCase{
			{name: "power read", rules: []faults.Rule{answers("", "", faults.Status{Code: 401})}, check: refused(get, redfish.CodeUnauthenticated, "HTTP 401", 1)},
			{name: "power set", rules: []faults.Rule{answers("POST", "**/"+hostReset, faults.Status{Code: 401})}, check: refused(set, redfish.CodeUnauthenticated, "HTTP 401", 2)},
			{name: "in the checks", rules: []faults.Rule{answers("GET", servicePath+"/FirmwareInventory", faults.Status{Code: 401})},
				check: ended{code: job.FailureBMCAuthFailed, phase: "update", text: "HTTP 401"}.check},
			{name: "in the poll", rules: []faults.Rule{answers("GET", taskPath, faults.Status{Code: 401})}, check: func(b *bench) {
				ended{code: job.FailureBMCAuthFailed, phase: "poll", text: "HTTP 401", sent: 1, activate: true}.check(b)
				require.Equal(b.t, 1, b.count("GET", taskPath), "who is refused does not go on asking")
			}},
			{name: "in the activation", rules: []faults.Rule{answers("POST", "**/"+hostReset, faults.Status{Code: 401})}, check: func(b *bench) {
				ended{code: job.FailureBMCAuthFailed, phase: "activation", text: "HTTP 401", sent: 1, activate: true}.check(b)
				require.Equal(b.t, 1, b.posts(hostReset))
			}},
		}},
		{"403", []faultCase{
			{name: "power set", rules: []faults.Rule{answers("POST", "**/"+hostReset, faults.Status{Code: 403})}, check: refused(set, redfish.CodeForbidden, "HTTP 403", 2)},
			{name: "password to be changed", knobs: bmc.Knobs{PasswordExpired: true}, check: func(b *bench) {
				ended{code: job.FailureBMCAuthFailed, phase: "update", text: "The password has to be changed", activate: true}.check(b)
				require.Empty(b.t, b.rack.Requests(b.tray.ID(), anyWrite))
			}},
		}},
		{"503 with Retry-After", []faultCase{
			{name: "power read", rules: []faults.Rule{answers("GET", systemPath, faults.Status{Code: 503, Headers: map[string]string{"Retry-After": "60"}})},
				check: refused(get, redfish.CodeUnavailable, "HTTP 503", 1)},
			{name: "task", rules: []faults.Rule{answers("GET", taskPath, faults.Status{Code: 503, Headers: map[string]string{"Retry-After": "1"}}, 1)}, check: func(b *bench) {
				installs(b)
				polls := b.rack.Requests(b.tray.ID(), reqlog.Filter{Method: "GET", Path: taskPath})
				require.GreaterOrEqual(b.t, polls[1].Time.Sub(polls[0].End()), time.Second)
			}},
		}},
		{"slow answer", []faultCase{
			{name: "power read", agent: impatient, rules: slow(systemPath), check: refused(get, redfish.CodeTimeout, "read power state", 1)},
			{name: "update service", agent: impatient, rules: slow(servicePath), check: ended{code: job.FailureBMCUnreachable, phase: "update", text: "did not become ready"}.check},
			{name: "upload", agent: func(o *agenttest.AgentOptions) { o.Timing.Redfish.UploadStall = 150 * time.Millisecond },
				knobs: bmc.Knobs{UploadBytesPerSecond: 1}, check: func(b *bench) {
					j := b.run(activated(b.File("", "nvfw_P4972_9.fwpkg", make([]byte, 16<<20))))
					ended{code: job.FailureBMCUnreachable, phase: "update"}.of(b, j)
					require.Zero(b.t, b.posts(hostReset), "the host is not touched")
				}},
		}},
		{"connection lost", []faultCase{
			{name: "power read", rules: []faults.Rule{{Selector: faults.Request("GET", systemPath), Action: faults.Action{Cut: &faults.Cut{Bytes: 20}}}},
				check: refused(get, redfish.CodeUnavailable, "read answer", 1)},
			{name: "inventory, once", rules: []faults.Rule{{Selector: faults.Request("GET", servicePath+"/FirmwareInventory"), Remaining: 1,
				Action: faults.Action{Cut: &faults.Cut{Bytes: 20}}}}, check: installs},
			{name: "tasks, once", rules: []faults.Rule{{Selector: faults.Request("GET", taskPath), Remaining: 1, Action: faults.Action{Cut: &faults.Cut{}}}}, check: installs},
		}},
		{"malformed answer", []faultCase{
			{name: "half a document", rules: []faults.Rule{{Selector: faults.Request("GET", systemPath), Action: faults.Action{Malformed: true}}},
				check: refused(get, redfish.CodeInvalidResponse, "read power state", 1)},
			{name: "HTML", rules: []faults.Rule{replace("GET", servicePath+"/FirmwareInventory", html)}, check: refused(list, redfish.CodeInvalidResponse, "read firmware inventory", 1)},
			{name: "HTML for the inventory", rules: []faults.Rule{replace("GET", servicePath+"/FirmwareInventory", html)},
				check: ended{code: job.FailureBMCInvalidResponse, phase: "update", text: "FirmwareInventory", activate: true}.check},
			{name: "HTML for the upload", rules: []faults.Rule{replace("POST", pushPath, html)}, check: installs},
			{name: "HTML for the task, for a while", rules: []faults.Rule{replace("GET", taskPath, html, 3)}, check: installs},
		}},
		{"redirect", []faultCase{
			{name: "read on the same host", rules: []faults.Rule{{Selector: faults.Request("GET", systemPath), Action: faults.Action{Redirect: &faults.Redirect{}}}}, check: reads("ON")},
			{name: "read on another host", check: sentAbroad("GET", systemPath, refused(get, redfish.CodeInvalidResponse, "redirect refused", 1))},
			{name: "change on another host", check: sentAbroad("POST", "**/"+hostReset, refused(set, redfish.CodeInvalidResponse, "redirect refused", 2))},
			{name: "upload on the same host", rules: []faults.Rule{{Selector: faults.Request("POST", pushPath), Action: faults.Action{Redirect: &faults.Redirect{}}}}, check: installs},
			{name: "upload on another host", check: sentAbroad("POST", pushPath,
				ended{code: job.FailureBMCInvalidResponse, phase: "update", text: "redirect refused", activate: true}.check)},
		}},
		{"session limit", []faultCase{
			{name: "power read", rules: []faults.Rule{answers("GET", systemPath, full)}, check: refused(get, redfish.CodeUnavailable, full.MessageID, 1)},
			{name: "upload, for a while", rules: []faults.Rule{answers("POST", pushPath, full, 2)}, check: installs},
			{name: "upload, for a while, with 400", rules: []faults.Rule{answers("POST", pushPath, alike, 2)}, check: installs},
			{name: "no session is opened", knobs: bmc.Knobs{SessionSlots: 1}, check: func(b *bench) {
				installs(b)
				require.Zero(b.t, b.count("", "**/SessionService/**"))
			}},
		}},
		{"link off the device", []faultCase{
			{name: "inventory member", rules: []faults.Rule{merge(servicePath+"/FirmwareInventory",
				`{"Members":[{"@odata.id":"https://evil.example/x"},{"@odata.id":"`+servicePath+`/FirmwareInventory/FW_BMC_0"}]}`)}, check: func(b *bench) {
				reply := b.Ask(b.node, list)
				require.Nil(b.t, reply.GetError(), "%v", reply.GetError())
				require.Len(b.t, reply.GetFirmware(), 1, "it is skipped")
			}},
			{name: "action", rules: []faults.Rule{merge(systemPath, `{"Actions":{"#ComputerSystem.Reset":{"target":"https://evil.example/x"}}}`)}, check: func(b *bench) {
				refused(set, redfish.CodeInvalidArgument, "outside its own origin", 1)(b)
				require.Zero(b.t, b.count("POST", ""))
			}},
			{name: "push URI", rules: []faults.Rule{merge(servicePath, `{"MultipartHttpPushUri":"https://evil.example/x"}`)}, check: func(b *bench) {
				installs(b)
				require.Equal(b.t, 1, b.count("POST", pushPath), "its usual place is used")
			}},
		}},
	}
}

// updateFaults are faults of the firmware, its tasks and its activation.
func updateFaults() []faultRow {
	badTask := func(name, state, status, text string) faultCase {
		return faultCase{name: name, knobs: taskEnd(state, status, bmc.Message{
			ID: "Update.1.0.Judged", Text: text, Severity: "Warning", Resolution: "Send another image.",
		}), check: func(b *bench) {
			j := b.run(activated(b.trayPackage()))
			ended{code: job.FailureTaskException, phase: "poll", text: text, sent: 1}.of(b, j)
			require.Equal(b.t, "Update.1.0.Judged", j.Failure.Device.MessageID)
			require.Contains(b.t, j.Failure.Message, "Resolution: Send another image.")
		}}
	}
	running := func(state string) faultCase {
		return faultCase{name: "in state " + state, knobs: bmc.Knobs{RunningTask: "77", RunningTaskState: state},
			check: ended{code: job.FailureUpdateAlreadyRunning, phase: "update", text: "77 (state " + state + ")"}.check}
	}
	broken := func(name string, times ...int) faults.Rule {
		return answers("GET", servicePath+"/FirmwareInventory/"+name, faults.Status{Code: 500}, times...)
	}
	return []faultRow{
		{"task ends badly", []faultCase{
			badTask("cancelled", "Cancelled", "OK", "Somebody has cancelled it."),
			badTask("cancelled like a shelf", "Cancelled", "Warning", "The task completed with errors."),
			badTask("warning of detected errors", "Completed", "Warning", "The update detected errors."),
			badTask("warning completed with errors", "Completed", "Warning", "The update completed with errors."),
			badTask("warning of update errors", "Completed", "Warning", "The firmware update had errors."),
			badTask("warning of no devices", "Completed", "Warning", "No matching devices were found."),
			badTask("warning of resource errors", "Completed", "Warning", "ResourceErrorsDetected on FW_BMC_0."),
			{name: "warning of nothing bad", knobs: bmc.Knobs{TaskEnd: &bmc.TaskEnd{State: "Completed", Status: "Warning", Flashed: true,
				Messages: []bmc.Message{{ID: "Update.1.0.AwaitToActivate", Text: "It waits for its activation.", Severity: "Warning"}}}}, check: installs},
		}},
		{"inventory member fails", []faultCase{
			{name: "query", rules: []faults.Rule{broken("FW_CPLD_0")}, check: func(b *bench) {
				reply := b.Ask(b.node, redfishagent.OpFirmwareInventory)
				require.Equal(b.t, string(redfish.CodeUnavailable), reply.GetError().GetCode())
				require.Contains(b.t, reply.GetError().GetMessage(), "FW_CPLD_0: ", "it is named")
			}},
			{name: "one that the package does not bring", rules: []faults.Rule{broken("HGX_FW_GPU_0")}, check: installs},
			// A passing fault must not cost the verification.
			{name: "one that the package brings, for a while", rules: []faults.Rule{broken("FW_BMC_0", 2)}, knobs: bmc.Knobs{VersionUnchanged: true},
				check: ended{code: job.FailureVersionMismatch, phase: "post_activation_version_check", text: "FW_BMC_0: expected 99.01", sent: 1, aux: 1, activate: true}.check},
			{name: "one that the package brings", rules: []faults.Rule{broken("FW_BMC_0")}, check: func(b *bench) {
				j := b.run(activated(b.trayPackage()))
				require.Equal(b.t, job.StateCompleted, j.State, "%+v", j.Failure)
				check := decode(b.t, j.ResultJSON)["post_activation_version_check"].(map[string]any)
				require.Equal(b.t, "unverified", check["status"], "what nobody has seen is not told as matched")
			}},
			{name: "the one that the target names", rules: []faults.Rule{broken("FW_BMC_0")}, check: func(b *bench) {
				target := b.trayPackage()
				target.Component = servicePath + "/FirmwareInventory/FW_BMC_0"
				ended{code: job.FailureVersionMismatch, phase: "post_activation_version_check", text: "FW_BMC_0: expected 99.01", sent: 1, aux: 1}.of(b, b.run(activated(target)))
			}},
		}},
		{"update already running", []faultCase{
			running("New"), running("Pending"), running("Starting"), running("Service"),
			{name: "of the baseboard", knobs: bmc.Knobs{RunningTask: "HGX_77"}, check: func(b *bench) {
				j := b.run(update(b.pldm("nvfw_P4975_"+b.tray.ID()+".fwpkg", "9.9", "HMC")))
				ended{code: job.FailureUpdateAlreadyRunning, phase: "update", text: "HGX_77 (state Running)"}.of(b, j)
			}},
			{name: "of the baseboard, image for the tray", knobs: bmc.Knobs{RunningTask: "HGX_77"}, check: func(b *bench) {
				j := b.run(update(b.trayPackage()))
				require.Equal(b.t, job.StateCompleted, j.State, "%+v", j.Failure)
				require.Len(b.t, b.uploads(), 1)
			}},
			// The AUX cycle would break what the other controller writes.
			{name: "of the baseboard, image for the tray with activation", knobs: bmc.Knobs{RunningTask: "HGX_77"},
				check: ended{code: job.FailureUpdateAlreadyRunning, phase: "update", text: "HGX_77 (state Running)", activate: true}.check},
			{name: "of the baseboard, and the BMC is to be recovered", knobs: bmc.Knobs{RunningTask: "HGX_77"}, agent: impatient,
				rules: []faults.Rule{answers("GET", servicePath, faults.Status{Code: 503})},
				check: func(b *bench) {
					ended{code: job.FailureUpdateAlreadyRunning, phase: "update", text: "HGX_77", activate: true}.check(b)
					require.Zero(b.t, b.posts(hostReset), "the host is not touched either")
				}},
			{name: "of the tray, image for the baseboard", knobs: bmc.Knobs{RunningTask: "77"}, check: func(b *bench) {
				j := b.run(update(b.pldm("nvfw_P4975_"+b.tray.ID()+".fwpkg", "9.9", "HMC")))
				require.Equal(b.t, job.StateCompleted, j.State, "%+v", j.Failure)
				require.Len(b.t, b.uploads(), 1)
			}},
		}},
		{"power state is never reached", []faultCase{
			{name: "off, GB200", knobs: bmc.Knobs{PowerOffIgnored: -1}, agent: hasty,
				check: ended{code: job.FailureActivationFailed, phase: "activation", text: "last read ON", sent: 1, activate: true}.check},
			{name: "on, GB300", model: gb300Tray, knobs: bmc.Knobs{PowerOnIgnored: -1}, agent: func(o *agenttest.AgentOptions) {
				o.Timing.Redfish.PowerOnLongLimit = 2 * time.Second
			}, check: func(b *bench) {
				ended{code: job.FailureActivationFailed, phase: "activation", text: "last read OFF", sent: 1, aux: 1, activate: true}.check(b)
				require.Greater(b.t, b.posts(hostReset), 2, "the power-on was repeated")
			}},
			{name: "transition, GB300", model: gb300Tray, knobs: bmc.Knobs{PowerOnStuck: true}, agent: func(o *agenttest.AgentOptions) {
				o.Timing.Redfish.PowerOnLongLimit = 300 * time.Millisecond
			}, check: ended{code: job.FailureActivationFailed, phase: "activation", text: "PoweringOn", sent: 1, aux: 1, activate: true}.check},
			{name: "transition, read", knobs: bmc.Knobs{PowerReported: "PoweringOff"}, check: reads("UNKNOWN")},
			{name: "null, read", rules: []faults.Rule{merge(systemPath, `{"PowerState":null}`)}, check: reads("UNKNOWN")},
		}},
	}
}

// A request without credentials is told at once and in clear words; the next one of the
// node, with them, is carried out.
func TestG8(t *testing.T) {
	b := newTray(t)
	good := b.node.GetBmc().GetCredentials()
	b.node.Bmc.Credentials = nil
	j := b.run(update(b.trayPackage()))
	require.Equal(t, job.StateFailed, j.State)
	require.Contains(t, strings.ToLower(j.Failure.Message), "credentials")
	require.Empty(t, b.rack.Requests(b.tray.ID(), reqlog.Filter{}), "nothing is sent")
	b.node.Bmc.Credentials = good
	installs(b)
}
