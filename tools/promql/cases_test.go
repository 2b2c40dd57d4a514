// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"fmt"
	"strings"
)

// alertCase is an hour of series, one value a minute, on which an alert fires, and one on which it does not.
type alertCase struct {
	bad   string
	fires []string
	good  string
}

// partitions are the series of a fold that is active for the first n.
func partitions(n int) string {
	var b strings.Builder
	for p := range n {
		fmt.Fprintf(&b, "  rackbus_fold_lag_events{site=\"a\", instance=\"j%d\", partition=\"%d\"} 0x60\n", p%2, p)
	}
	return b.String()
}

const build = `  rackbus_build_info{site="a", instance="x", version="1"} 1x60` + "\n"

func processCases() map[string]alertCase {
	return map[string]alertCase{
		"RackbusNotReady": {
			bad: `  rackbus_ready{site="a", instance="x", check="bus"} 1x50 0x9
  rackbus_ready{site="a", instance="x", check="start"} 1x60`,
			fires: []string{`{check="bus", instance="x", site="a"}`},
			good:  `  rackbus_ready{site="a", instance="x", check="bus"} 0x30 1x29`,
		},
		"RackbusBusDown": {
			bad: `  rackbus_ready{site="a", instance="x", check="bus"} 0x60
  rackbus_ready{site="a", instance="y", check="bus"} 0x60
  rackbus_ready{site="b", instance="z", check="bus"} 1x60`,
			fires: []string{`{site="a"}`},
			good: `  rackbus_ready{site="a", instance="x", check="bus"} 0x60
  rackbus_ready{site="a", instance="y", check="bus"} 1x60`,
		},
		"RackbusVersionsDiffer": {
			bad:   build + `  rackbus_build_info{site="a", instance="y", version="2"} 1x60`,
			fires: []string{`{site="a"}`},
			good: build + `  rackbus_build_info{site="a", instance="y", version="1"} 1x60
  rackbus_build_info{site="b", instance="z", version="2"} 1x60`,
		},
		"RackbusFilesFull": {
			bad: `  process_open_fds{site="a", instance="x"} 950x60
  process_max_fds{site="a", instance="x"} 1000x60`,
			fires: []string{`{instance="x", site="a"}`},
			good: `  process_open_fds{site="a", instance="x"} 500x60
  process_max_fds{site="a", instance="x"} 1000x60`,
		},
	}
}

func foldCases() map[string]alertCase {
	return map[string]alertCase{
		// One partition less; no jobs service at all has a case of its own below.
		"RackbusPartitionWithoutFold": {bad: build + partitions(7), fires: []string{`{site="a"}`}, good: build + partitions(8)},
		"RackbusFoldLags": {
			bad: `  rackbus_fold_lag_events{site="a", instance="x", partition="3"} 0+100x60
  rackbus_fold_lag_events{site="a", instance="x", partition="4"} 0x60`,
			fires: []string{`{partition="3", site="a"}`},
			good:  `  rackbus_fold_lag_events{site="a", instance="x", partition="3"} 20x60`,
		},
		"RackbusFoldCommitsFail": {
			bad:   `  rackbus_fold_commits_total{site="a", instance="x", result="error"} 0+30x60`,
			fires: []string{`{site="a"}`},
			good: `  rackbus_fold_commits_total{site="a", instance="x", result="ok"} 0+30x60
  rackbus_fold_commits_total{site="a", instance="x", result="error"} 0x60`,
		},
		"RackbusFoldFenced": {
			bad:   `  rackbus_fold_fenced_total{site="a", instance="x"} 0+1x60`,
			fires: []string{`{site="a"}`},
			good:  `  rackbus_fold_fenced_total{site="a", instance="x"} 0x58 2x2`,
		},
		"RackbusEventsUnreadable": {
			bad:   `  rackbus_fold_events_total{site="a", instance="x", kind="unspecified", result="invalid"} 0x55 1x5`,
			fires: []string{`{site="a"}`},
			good:  `  rackbus_fold_events_total{site="a", instance="x", kind="finished", result="applied"} 0+10x60`,
		},
		"RackbusTimersFail": {
			bad:   `  rackbus_timers_total{site="a", instance="x", kind="deadline", result="error"} 0+1x60`,
			fires: []string{`{kind="deadline", site="a"}`},
			good: `  rackbus_timers_total{site="a", instance="x", kind="deadline", result="ok"} 0+10x60
  rackbus_timers_total{site="a", instance="x", kind="deadline", result="error"} 0x60`,
		},
	}
}

func agentCases() map[string]alertCase {
	const session = `  rackbus_agent_session_validity_seconds{site="a", instance="%s", family="%s"} %s` + "\n"
	return map[string]alertCase{
		"RackbusAgentSessionExpired": {
			bad:   fmt.Sprintf(session, "x", "compute", "5x55 -1x4") + fmt.Sprintf(session, "y", "compute", "5x60"),
			fires: []string{`{family="compute", instance="x", site="a"}`},
			good:  fmt.Sprintf(session, "x", "compute", "5x60"),
		},
		// One family is gone altogether, of the other one agent is left; the third was never there.
		"RackbusNoAgents": {
			bad: fmt.Sprintf(session, "x", "compute", "5x30 _x30") + fmt.Sprintf(session, "y", "switch", "5x60") +
				fmt.Sprintf(session, "z", "switch", "5x30 _x30"),
			fires: []string{`{family="compute", site="a"}`},
			good:  fmt.Sprintf(session, "x", "compute", "5x60"),
		},
		"RackbusTakeovers": {
			bad:   `  rackbus_agent_takeovers_total{site="a", instance="x", family="switch"} 0+3x60`,
			fires: []string{`{family="switch", site="a"}`},
			good:  `  rackbus_agent_takeovers_total{site="a", instance="x", family="switch"} 0x58 5x2`,
		},
		"RackbusDevicesDoNotAnswer": {
			bad: `  rackbus_agent_query_seconds_count{site="a", instance="x", family="compute", op="power_get", result="error"} 0+9x60
  rackbus_agent_query_seconds_count{site="a", instance="x", family="compute", op="power_get", result="ok"} 0+1x60`,
			fires: []string{`{family="compute", site="a"}`},
			good: `  rackbus_agent_query_seconds_count{site="a", instance="x", family="compute", op="power_get", result="error"} 0+1x60
  rackbus_agent_query_seconds_count{site="a", instance="x", family="compute", op="power_get", result="ok"} 0+9x60`,
		},
	}
}

func jobCases() map[string]alertCase {
	const ended = `  rackbus_agent_jobs_finished_total{site="a", instance="x", family="f", type="%s", state="%s"} %s` + "\n"
	const waves = `  rackbus_api_rollouts_in_state{site="a", instance="x", state="%s"} %s` + "\n"
	const state = `  rackbus_jobs_in_state{site="a", instance="x", state="%s"} %s` + "\n"
	const starts = `  rackbus_job_queue_seconds_count{site="a", instance="x"} %s` + "\n"
	return map[string]alertCase{
		"RackbusCapacityLow": {
			bad: `  rackbus_capacity_records{site="a", instance="j"} 900x60
  rackbus_capacity_limit_records{site="a", instance="api"} 1000x60`,
			fires: []string{`{site="a"}`},
			good: `  rackbus_capacity_records{site="a", instance="j"} 800x60
  rackbus_capacity_limit_records{site="a", instance="api"} 1000x60`,
		},
		"RackbusJobsFail": {
			bad:   fmt.Sprintf(ended, "firmware_update", "timed_out", "0+1x60") + fmt.Sprintf(ended, "firmware_update", "completed", "0+1x60"),
			fires: []string{`{site="a", type="firmware_update"}`},
			// Few of many, and all of few.
			good: fmt.Sprintf(ended, "firmware_update", "failed", "0+1x60") + fmt.Sprintf(ended, "firmware_update", "completed", "0+9x60") +
				fmt.Sprintf(ended, "cold_reboot_sequence", "failed", "0x30 2x30"),
		},
		"RackbusJobsStuck": {
			bad: fmt.Sprintf(state, "queued", "5x60") + fmt.Sprintf(state, "running", "0x60") + fmt.Sprintf(starts, "7x60") +
				fmt.Sprintf(waves, "held", "0x60"),
			fires: []string{`{site="a"}`},
			// All wait for a wave that somebody holds.
			good: fmt.Sprintf(state, "queued", "5x60") + fmt.Sprintf(state, "running", "0x60") + fmt.Sprintf(starts, "7x60") +
				fmt.Sprintf(waves, "held", "1x60"),
		},
		"RackbusJobsQueuedLong": {
			bad:   `  rackbus_jobs_queued_oldest_seconds{site="a", instance="x"} 20000+60x60`,
			fires: []string{`{site="a"}`},
			good:  `  rackbus_jobs_queued_oldest_seconds{site="a", instance="x"} 0+60x60`,
		},
		"RackbusRolloutHeld": {
			bad: `  rackbus_api_rollouts_in_state{site="a", instance="x", state="held"} 1x60
  rackbus_api_rollouts_in_state{site="a", instance="y", state="held"} 1x60`,
			fires: []string{`{site="a"}`},
			good: `  rackbus_api_rollouts_in_state{site="a", instance="x", state="held"} 1x30 0x29
  rackbus_api_rollouts_in_state{site="a", instance="x", state="running"} 1x60`,
		},
		"RackbusStopsSlowly": {
			bad:   fmt.Sprintf(state, "cancellation_requested", "1x60"),
			fires: []string{`{site="a"}`},
			good:  fmt.Sprintf(state, "cancellation_requested", "1x30 0x29"),
		},
		"RackbusDiagnosesFail": {
			bad:   fmt.Sprintf(ended, "node_diagnostics", "failed", "0+1x60"),
			fires: []string{`{site="a"}`},
			good:  fmt.Sprintf(ended, "node_diagnostics", "completed", "0+1x60"),
		},
	}
}

func apiCases() map[string]alertCase {
	const calls = `  grpc_server_handled_total{site="a", instance="x", grpc_code="%s", grpc_method="GetJob", grpc_service="s", grpc_type="unary"} %s` + "\n"
	const bucket = `  grpc_server_handling_seconds_bucket{site="a", instance="x", grpc_method="GetJobStatus", grpc_service="s", grpc_type="unary", le="%s"} %s` + "\n"
	return map[string]alertCase{
		"RackbusNoAPI": {
			bad:   `  rackbus_capacity_limit_records{site="a", instance="x"} 100x30 _x30`,
			fires: []string{`{site="a"}`},
			good: `  rackbus_capacity_limit_records{site="a", instance="x"} 100x30 _x30
  rackbus_capacity_limit_records{site="a", instance="y"} 100x60`,
		},
		"RackbusAPIErrors": {
			bad:   fmt.Sprintf(calls, "Unavailable", "0+1x60") + fmt.Sprintf(calls, "OK", "0+9x60"),
			fires: []string{`{site="a"}`},
			good:  fmt.Sprintf(calls, "NotFound", "0+9x60") + fmt.Sprintf(calls, "OK", "0+1x60"),
		},
		"RackbusAPISlow": {
			bad:   fmt.Sprintf(bucket, "1", "0+1x60") + fmt.Sprintf(bucket, "5", "0+10x60") + fmt.Sprintf(bucket, "+Inf", "0+10x60"),
			fires: []string{`{site="a"}`},
			good:  fmt.Sprintf(bucket, "1", "0+10x60") + fmt.Sprintf(bucket, "5", "0+10x60") + fmt.Sprintf(bucket, "+Inf", "0+10x60"),
		},
		"RackbusAuditLost": {
			bad:   `  rackbus_audit_lost_total{site="a", instance="x"} 0x55 1x5`,
			fires: []string{`{site="a"}`},
			good:  `  rackbus_audit_lost_total{site="a", instance="x"} 4x60`,
		},
		"RackbusEvidenceFails": {
			bad: `  rackbus_diagnostics_downloads_total{site="a", instance="x", code="503"} 0x50 3x10
  rackbus_diagnostics_downloads_total{site="a", instance="x", code="0"} 0x50 3x10`,
			fires: []string{`{site="a"}`},
			good:  `  rackbus_diagnostics_downloads_total{site="a", instance="x", code="410"} 0+5x60`,
		},
	}
}

func alertCases() map[string]alertCase {
	out := map[string]alertCase{}
	for _, cases := range []map[string]alertCase{processCases(), foldCases(), agentCases(), jobCases(), apiCases()} {
		for name, c := range cases {
			out[name] = c
		}
	}
	return out
}
