// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// faultRows are what devices do wrong, what comes of it, and the tests that show it.
func faultRows() []row {
	return append(requestFaultRows(), updateFaultRows()...)
}

// inBoth is a row of the tables of faults of both agents.
func inBoth(name string, more ...cited) []cited {
	return append([]cited{{trays, "TestFaults/" + name}, {shelves, "TestFaults/" + name}}, more...)
}

func requestFaultRows() []row {
	return []row{
		{"401", "refused credentials, told at once; nobody asks twice", inBoth("401",
			cited{trays, "TestChecksFail/credentials_refused"}, cited{client, "TestG4CredentialFaultIsAskedOnce"})},
		{"403", "as 401, with the device's words, such as a password to be changed", inBoth("403", cited{trays, "TestRefusedQueries/password_expired"})},
		{"503 with `Retry-After`", "a query fails; uploads and polls wait as long as they are asked to", inBoth("503_with_Retry-After",
			cited{trays, "TestRetryAfterIsHonoured"}, cited{client, "TestWaitTask/503_with_Retry-After"})},
		{"slow answer", "each request has its limit; an upload has one for standing still", []cited{
			{trays, "TestFaults/slow_answer"}, {client, "TestF12SilentDeviceTimesOut"}, {client, "TestStalledUploadFails"}, {trays, "TestE17"}}},
		{"connection refused, or reset in the middle", "refused: told at once; lost: reads are repeated, changes only when they did not happen", inBoth("connection_lost",
			cited{trays, "TestChecksFail/unreachable"}, cited{trays, "TestRefusedQueries/unreachable"}, cited{client, "TestNoConnection"},
			cited{trays, "TestUpdateGetsOver/upload_cut_in_the_middle"}, cited{trays, "TestUpdateGetsOver/upload_cut_after_the_device_took_it"})},
		{"malformed JSON, HTML", "an invalid answer; a lost answer where it was one to a change", inBoth("malformed_answer",
			cited{trays, "TestUpdateGetsOver/answer_of_the_upload_broken"})},
		{"202 without a body", "the task that has come is followed", []cited{
			{trays, "TestUpdateGetsOver/answer_without_task"}, {trays, "TestE1"}, {client, "TestAcceptedWithoutTask_E6/202_empty"}}},
		{"neither `Location` nor a link to a task", "the installed version decides", []cited{{trays, "TestE6"}, {trays, "TestE21"}}},
		{"redirect", "followed on the same host, refused to another", inBoth("redirect",
			cited{client, "TestF13Redirects"}, cited{client, "TestF13ForeignRedirectIsRefused"})},
		{"session limit", "no session is opened; a device that is full anyway is asked again", []cited{
			{trays, "TestFaults/session_limit"}, {client, "TestG1NoSessionIsEverOpened"}}},
		{"member, action or push URI off the device", "skipped; refused; the usual place instead", inBoth("link_off_the_device",
			cited{client, "TestLinksOutsideTheDeviceAreNotFollowed"}, cited{client, "TestInventoryCollections/members_off_the_device_are_skipped"})},
		{"one inventory member fails", "the query fails and names it; an update goes on, and no version counts that nobody has read", []cited{
			{trays, "TestFaults/inventory_member_fails"}, {client, "TestInventoryWithOneBadMember"}}},
		{"supplies mixed, unreadable, null", "OFF; skipped; UNKNOWN when none can be read", []cited{
			{shelves, "TestFaults/supplies_disagree"}, {client, "TestShelfPowerState"}, {client, "TestDeltaPowerState"}}},
		{"two chassis named `powershelf…`", "the first is the shelf", []cited{{shelves, "TestFaults/two_chassis"}}},
	}
}

func updateFaultRows() []row {
	return []row{
		{"`ServiceEnabled` false", "the update fails, nothing is sent", []cited{
			{trays, "TestChecksFail/update_service_off"}, {shelves, "TestFaults/update_service_off"}}},
		{"write protect", "the update fails and names what is protected", []cited{
			{trays, "TestChecksFail/hardware_write_protect"}, {trays, "TestChecksFail/component_write_protect"}, {client, "TestCheckWritable"}}},
		{"background copy, for a while and for ever", "waited for; fails at the limit", []cited{
			{trays, "TestUpdateGetsOver/background_copy_that_ends"}, {trays, "TestChecksFail/background_copy_never_ends"}, {client, "TestBackgroundCopy"}}},
		{"update task of somebody else, of BMC or HMC", "the update fails when it is for the same controller, or would power-cycle the tray under it", []cited{
			{trays, "TestFaults/update_already_running"}, {trays, "TestChecksFail/foreign_update"}, {trays, "TestUpdateGetsOver/HMC_task"},
			{trays, "TestInBandBesideAForeignUpdate"}}},
		{"PATCH 412, or 400", "sent again in the other form; 400 counts as done when the device says or shows that the value is there", []cited{
			{shelves, "TestFaults/patch_refused"}, {client, "TestF7PatchWorksWithEveryKindOfETag"}, {client, "TestSetApplyTime"}}},
		{"LiteOn refuses the image for all supplies", "one supply after the other", []cited{{shelves, "TestSuppliesAreRefusedTogether"}}},
		{"OnReset hand-off in both shapes, upload dropped", "completed, activation follows", []cited{
			{shelves, "TestHandoff"}, {shelves, "TestDroppedUploadIsAdopted"}, {shelves, "TestOldHandoffIsNotAdopted"}}},
		{"task Exception, Cancelled, or Completed with a telling Warning", "the update fails with the device's words", inBoth("task_ends_badly",
			cited{trays, "TestTaskFails/exception"}, cited{trays, "TestE13"})},
		{"task `Killed`", "the update fails at once", []cited{{trays, "TestTaskFails/killed"}, {shelves, "TestFaults/task_ends_badly/killed"}}},
		{"task stuck at 99 %", "the update fails at the limit", []cited{
			{trays, "TestTaskFails/stuck"}, {shelves, "TestFaults/task_ends_badly/stuck"}, {client, "TestWaitTask/stuck_at_99"}}},
		{"task 404 after a restart", "the installed version decides", []cited{
			{trays, "TestE10"}, {trays, "TestE12"}, {trays, "TestSupermicroOrder"}, {trays, "TestSupermicroLostTaskWithOldVersion"},
			{shelves, "TestFaults/controller_restarts"}}},
		{"BMC restarts in the middle of an update", "followed on, or judged by the version", []cited{
			{trays, "TestE9"}, {trays, "TestUpdateGetsOver/restart_in_the_middle"}, {trays, "TestUpdateGetsOver/restart_without_connections"},
			{shelves, "TestFaults/controller_restarts"}}},
		{"AUX cycle refused while the host is on", "the host goes off first; one that stays on ends the activation, without a second cycle", []cited{
			{trays, "TestActivationFails/AUX_while_the_host_is_on"}, {client, "TestH5AuxCycleComesAfterTheHostIsOff"}}},
		{"power never reaches On or Off", "GB200: a second AUX cycle; then the activation fails with the last state", []cited{
			{trays, "TestFaults/power_state_is_never_reached"}, {trays, "TestSecondRound"}, {client, "TestH4IgnoredPowerOnFailsWithTheLastState"}}},
		{"manager reset without an outage", "reset time, uptime or tasks show it; one that is taken and ignored fails", []cited{
			{shelves, "TestFaults/manager_reset"}, {client, "TestShelfActivation"}, {client, "TestControllerThatForgetsItsTasksHasRestarted"}}},
		{"version unchanged after the activation", "fails with both versions", []cited{
			{trays, "TestActivationFails/version_unchanged"}, {shelves, "TestFaults/manager_reset"}}},
	}
}

// Each kind of fault is there once, with an outcome and a test.
func TestEveryFaultHasATest(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range faultRows() {
		require.NotEmpty(t, r.outcome, r.operation)
		require.NotEmpty(t, r.tests, r.operation)
		require.False(t, seen[r.operation], r.operation)
		seen[r.operation] = true
	}
	require.Len(t, seen, 30)
}

// Each field report about devices has a test that is named after it.
func TestFieldReportsHaveTests(t *testing.T) {
	for _, reports := range []struct{ folder, letter, numbers string }{
		{trays, "E", "1 2 3 5 6 8 9 10 12 13 14 16 17 18 20 21 22 24 25"},
		{client, "F", "1 3 4 5 7 8 9 11 12 13"},
		{client, "G", "1 3 4 5 6 8 9"},
		{client, "H", "1 2 4 5 7 8"},
		{"pkg/ssh", "I", "1 3 4 5 7 8 10 11 13"},
	} {
		names := slices.Collect(maps.Keys(read(t, reports.folder)))
		for number := range strings.FieldsSeq(reports.numbers) {
			require.True(t, slices.ContainsFunc(names, func(name string) bool {
				rest, found := strings.CutPrefix(name, "Test"+reports.letter+number)
				return found && (rest == "" || rest[0] < '0' || rest[0] > '9')
			}), "%s: %s%s", reports.folder, reports.letter, number)
		}
	}
}
