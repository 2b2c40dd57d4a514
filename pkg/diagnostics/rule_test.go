// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

// now is the time the runs of these tests are about.
var now = time.Date(2026, 11, 30, 1, 0, 0, 0, time.UTC)

// lately is the period of runs that look an hour back.
var lately = Period{Since: now.Add(-time.Hour), Job: Span{now.Add(-20 * time.Minute), now}}

// documents decodes files as a bundle keeps them.
func documents(t *testing.T, files map[string]string) Evidence {
	t.Helper()
	e := Evidence{}
	for name, text := range files {
		doc, err := decodeMasked([]byte(text))
		require.NoError(t, err, name)
		e[name] = doc
	}
	return e
}

func resource(uri, body string) string {
	return fmt.Sprintf(`{"resources":[{"uri":"/other","body":{"Status":{"Health":"OK"}}},{"uri":%q,"body":%s}]}`, uri, body)
}

func entry(id, severity string, at time.Time) string {
	return fmt.Sprintf(`{"services":[],"entries":[{"MessageId":%q,"Message":"told by the device","Severity":%q,"Created":%q}]}`,
		id, severity, at.Format(time.RFC3339))
}

func endedWith(code job.FailureCode) string {
	return fmt.Sprintf(`{"job_id":"x","omitted":0,"events":[{"kind":"started"},{"kind":"finished","failure":{"failure_code":%q,"message":"why"}}]}`, code)
}

// TestEveryRuleIsRecognised has one node for every row of the table.
func TestEveryRuleIsRecognised(t *testing.T) {
	task := func(state, status, message string) string {
		return resource("/redfish/v1/TaskService/Tasks/7", fmt.Sprintf(
			`{"TaskState":%q,"TaskStatus":%q,"EndTime":%q,"Messages":[{"MessageId":%q}]}`, state, status, now.Format(time.RFC3339), message))
	}
	cases := map[string]map[string]string{
		"CPU_THERMAL_TRIP":           {"logs/sel.json": entry("OpenBMC.0.1.CPUThermalTrip", "Critical", now)},
		"POWER_SUPPLY_FAULT":         {"power_supplies.json": resource("/psu/2", `{"Status":{"Health":"Critical"}}`)},
		"POWER_SEQUENCE_FAULT":       {"logs/events.json": entry("OpenBMC.0.1.SystemPowerGoodFailed", "Critical", now)},
		"COOLING_FAULT":              {"logs/events.json": entry("OpenBMC.0.1.FanRedundancyLost", "Warning", now)},
		"LEAK_DETECTED":              {"chassis.json": resource("/leak", `{"DetectorState":"Critical"}`)},
		"MEMORY_UNCORRECTABLE_ERROR": {"logs/sel.json": entry("OpenBMC.0.1.MemoryECCUncorrectable", "Critical", now)},
		"PROCESSOR_FAULT":            {"logs/sel.json": entry("OpenBMC.0.4.CPUError", "Critical", now)},
		"MANAGER_FIRMWARE_PANIC":     {"logs/events.json": entry("OpenBMC.0.1.BMCKernelPanic", "Warning", now)},
		"SENSOR_CRITICAL":            {"sensors.json": resource("/s", `{"Name":"Inlet","Status":{"Health":"Critical"}}`)},

		"WRITE_PROTECTED":              {"chassis.json": resource("/c", `{"Oem":{"Nvidia":{"HardwareWriteProtectEnable":true}}}`)},
		"FIRMWARE_VERIFICATION_FAILED": {"tasks.json": task("Exception", "Critical", "Update.1.0.VerificationFailed")},
		"FIRMWARE_TRANSFER_FAILED":     {"tasks.json": task("Exception", "Critical", "Update.1.2.0.TransferFailed")},
		"FIRMWARE_APPLY_FAILED":        {"tasks.json": task("Completed", "Warning", "Update.1.0.ApplyFailed")},
		"FIRMWARE_ACTIVATION_FAILED":   {"tasks.json": task("Exception", "Critical", "Update.1.0.ActivateFailed")},
		"BACKGROUND_COPY_PENDING":      {"chassis.json": resource("/c", `{"Oem":{"Nvidia":{"BackgroundCopyStatus":"InProgress"}}}`)},
		"UPDATE_LEFT_RUNNING":          {"tasks.json": resource("/t", fmt.Sprintf(`{"TaskState":"Running","StartTime":%q}`, now.Add(-10*time.Minute).Format(time.RFC3339)))},
		"FOREIGN_UPDATE_RUNNING":       {"tasks.json": task("Running", "OK", "TaskEvent.1.0.3.TaskStarted")},
		"DEVICE_TASK_FAILED":           {"tasks.json": task("Killed", "Warning", "TaskEvent.1.0.3.TaskAborted")},

		"SWITCH_IMAGE_MISSING":          {"nvue/image.json": `{"next_partition":"partition2","next_absent":true,"reboot_due":true}`},
		"SWITCH_IMAGE_MISMATCH":         {"nvue/image.json": `{"next_build":"nvos-2","next_absent":false,"reboot_due":true}`},
		"SWITCH_FIRMWARE_UNHEALTHY":     {"nvue/firmware.json": `{"components":[{"name":"EROT","health":"Critical","pending":"1"}]}`},
		"SWITCH_FIRMWARE_PENDING":       {"nvue/firmware.json": `{"components":[{"name":"BMC","health":"OK","pending":"2.0"}]}`},
		"SWITCH_CLUSTER_APP_DOWN":       {"nvue/cluster.json": `{"enabled":true,"connection":"down","apps":[{"condition":"up"},{"condition":"down","told":"x"}]}`},
		"SWITCH_CONTROLLER_UNREACHABLE": {"fabric.json": `{"reachable":false,"error":"x"}`},
		"SWITCH_CLUSTER_DISCONNECTED":   {"nvue/cluster.json": `{"enabled":true,"connection":"down","apps":[{"condition":"up"}]}`},
		"SWITCH_ACTION_FAILED":          {"nvue/actions.json": `{"1":{"state":"action_success"},"2":{"state":"action_error","issue":[{"message":"no room"}]}}`},

		"IRONIC_INSPECTION_IPA_IMAGE_NOT_FOUND": {"ironic/problems.json": `{"problems":[{"code":"IRONIC_INSPECTION_IPA_IMAGE_NOT_FOUND","current":true,"text":"x"}]}`},
		"IRONIC_DRIVER_MISMATCH":                {"ironic/problems.json": `{"problems":[{"code":"IRONIC_DRIVER_MISMATCH","current":false,"text":"x"}]}`},
		"IRONIC_POWER_FAULT":                    {"ironic/node.json": `{"fault":"power failure","maintenance_reason":"x"}`},
		"IRONIC_PROVISION_FAILED":               {"ironic/node.json": `{"provision_state":"clean failed","last_error":"x"}`},

		"CREDENTIALS_REFUSED":           {HistoryFile: endedWith(job.FailureBMCAuthFailed)},
		"NODE_WAS_UNREACHABLE":          {HistoryFile: endedWith(job.FailureBMCUnreachable)},
		"WORKER_LOST":                   {HistoryFile: endedWith(job.FailurePanic)},
		"CHANGE_INTERRUPTED":            {HistoryFile: endedWith(job.FailureOutcomeUnknown)},
		"VERSION_MISMATCH_AFTER_UPDATE": {HistoryFile: endedWith(job.FailureVersionMismatch)},
		"RESOURCE_UNHEALTHY":            {"managers.json": resource("/m", `{"Status":{"Health":"OK","HealthRollup":"Warning"}}`)},
		SignatureNoFault:                {"managers.json": resource("/m", `{"Status":{"Health":"OK"}}`)},
	}
	rules := Rules()
	seen := map[string]bool{}
	for _, r := range rules {
		t.Run(r.Signature, func(t *testing.T) {
			require.Regexp(t, `^[A-Z][A-Z0-9_]+$`, r.Signature)
			require.False(t, seen[r.Signature], "a signature has one row")
			seen[r.Signature] = true
			require.NotEmpty(t, r.Summary)
			require.NotEmpty(t, r.Advice)
			files, ok := cases[r.Signature]
			require.True(t, ok, "the row has a case here")
			f := Classify(rules, documents(t, files), lately, true)
			require.Equal(t, r.Signature, f.Signature, f.Summary)
			require.Equal(t, r.Severity, f.Severity)
		})
	}
}

// TestWhatIsNoFault shows what must not be taken for one.
func TestWhatIsNoFault(t *testing.T) {
	healthy := resource("/m", `{"Status":{"Health":"OK"}}`)
	for name, c := range map[string]struct {
		files map[string]string
		whole bool
		want  string
	}{
		"old entry":          {map[string]string{"logs/sel.json": entry("OpenBMC.0.1.CPUThermalTrip", "Critical", now.Add(-48*time.Hour))}, true, SignatureNoFault},
		"old task":           {map[string]string{"tasks.json": resource("/t", `{"TaskState":"Exception","EndTime":"2025-01-01T00:00:00+00:00"}`)}, true, SignatureNoFault},
		"began before":       {map[string]string{"tasks.json": resource("/t", `{"TaskState":"Running","StartTime":"2026-11-30T00:00:00Z"}`)}, true, "FOREIGN_UPDATE_RUNNING"},
		"ended well":         {map[string]string{"tasks.json": resource("/t", `{"TaskState":"Completed","TaskStatus":"OK","Messages":[{"MessageId":"Update.1.0.UpdateSuccessful"}]}`)}, true, SignatureNoFault},
		"entry without time": {map[string]string{"logs/sel.json": `{"entries":[{"MessageId":"OpenBMC.0.1.CPUThermalTrip"}]}`}, true, "CPU_THERMAL_TRIP"},
		"unknown critical":   {map[string]string{"logs/sel.json": entry("Vendor.1.0.Odd", "Critical", now)}, true, SignatureUnclassified},
		"a collector failed": {map[string]string{"managers.json": healthy}, false, SignatureUnclassified},
		"a part unread":      {map[string]string{"managers.json": `{"resources":[{"uri":"/m","error":"HTTP 500"}]}`}, true, SignatureUnclassified},
		"a log unread":       {map[string]string{"logs/sel.json": `{"services":[{"uri":"/sel","error":"HTTP 500"}],"entries":null}`}, true, SignatureUnclassified},
		"text for people":    {map[string]string{"logs/sel.json": `{"entries":[{"Message":"PowerSupplyFailed","MessageId":"Vendor.1.0.Note"}]}`}, true, SignatureNoFault},
		"nothing":            {nil, true, SignatureNoFault},
	} {
		t.Run(name, func(t *testing.T) {
			f := Classify(Rules(), documents(t, c.files), lately, c.whole)
			require.Equal(t, c.want, f.Signature, f.Summary)
		})
	}
}

// TestFailureIsApartFromSignature has a problem of Ironic beside a fault of the
// hardware: the run fails with the one and carries the other.
func TestFailureIsApartFromSignature(t *testing.T) {
	const code = `{"problems":[{"code":"IRONIC_DRIVER_MISMATCH","current":%t,"at":%q,"text":"no raw commands"}]}`
	for name, c := range map[string]struct {
		current bool
		at      time.Time
		fails   bool
		named   bool
	}{
		"current": {true, now, true, true},
		"past":    {false, now, false, true},
		"old":     {false, now.Add(-48 * time.Hour), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			alone := map[string]string{"ironic/problems.json": fmt.Sprintf(code, c.current, c.at.Format(time.RFC3339))}
			got := Classify(Rules(), documents(t, alone), lately, true)
			require.Equal(t, c.named, got.Signature == string(job.FailureIronicDriverMismatch), got.Signature)
			alone["logs/sel.json"] = entry("OpenBMC.0.1.PowerSupplyFailed", "Critical", now)
			e := documents(t, alone)
			require.Equal(t, "POWER_SUPPLY_FAULT", Classify(Rules(), e, lately, true).Signature)
			failure, message, ok := FailureIn(Rules(), e, lately)
			require.Equal(t, c.fails, ok)
			if ok {
				require.Equal(t, job.FailureIronicDriverMismatch, failure)
				require.Contains(t, message, "no raw commands")
				require.Contains(t, message, "Change the driver")
			}
		})
	}
}

// TestFirstRuleCounts has evidence for two rows, and says the same every time.
func TestFirstRuleCounts(t *testing.T) {
	e := documents(t, map[string]string{
		HistoryFile:     endedWith(job.FailureBMCUnreachable),
		"chassis.json":  resource("/c", `{"Oem":{"Nvidia":{"HardwareWriteProtectEnable":true}}}`),
		"logs/sel.json": entry("OpenBMC.0.1.PowerSupplyFailed", "Critical", now),
	})
	first := Classify(Rules(), e, Period{Since: now}, true)
	require.Equal(t, "POWER_SUPPLY_FAULT", first.Signature)
	require.Contains(t, first.Summary, "told by the device")
	for range 20 {
		require.Equal(t, first, Classify(Rules(), e, Period{Since: now}, true))
	}
}

func TestConditionsHoldForOneElement(t *testing.T) {
	m := Match{File: "*.json", Each: "list.*", Where: []Condition{{"a", Is, []string{"1"}}, {"b.*.c", IsNot, []string{"no"}}}}
	for text, want := range map[string]bool{
		`{"list":[{"a":1,"b":[{"c":"no"}]},{"a":2,"b":[{"c":"yes"}]}]}`: false,
		`{"list":[{"a":1,"b":[{"c":"no"},{"c":"yes"}]}]}`:               true,
		`{"list":[{"a":1}]}`:                            false,
		`{"list":{"x":{"a":"1","b":{"k":{"c":true}}}}}`: true,
		`{"list":null}`:                                 false,
		`[]`:                                            false,
	} {
		_, found := m.find(newLook(documents(t, map[string]string{"x.json": text}), lately))
		require.Equal(t, want, found, text)
	}
}

// TestRulesAreDocumented keeps the table for people complete.
func TestRulesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/diagnostics.md")
	require.NoError(t, err)
	last := 0
	for _, r := range Rules() {
		at := strings.Index(string(text), "| `"+r.Signature+"` |")
		require.Greater(t, at, last, "%s is documented, in the order of the table", r.Signature)
		last = at
	}
	require.Contains(t, string(text), "| `"+SignatureUnclassified+"` |")
}
