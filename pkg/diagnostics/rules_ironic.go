// SPDX-License-Identifier: Apache-2.0

package diagnostics

import "github.com/rackbus/rackbus/pkg/job"

// ironicRules go by what Ironic tells of a node where it is asked. A problem that
// keeps Ironic from acting on the node now also fails the run.
func ironicRules() []Rule {
	const node = "ironic/node.json"
	problem := func(code job.FailureCode, current ...Condition) []Match {
		return []Match{{
			File: "ironic/problems.json", Each: "problems.*", Recent: "at", Tell: []string{"text"},
			Where: append([]Condition{{"code", Is, []string{string(code)}}}, current...),
		}}
	}
	now := Condition{"current", Is, []string{"true"}}
	return []Rule{
		{
			Signature: string(job.FailureIronicImageNotFound), Severity: SeverityCritical,
			Summary: "Ironic does not find the kernel or ramdisk with which it inspects and deploys the node",
			Advice: "Check the architecture of the images, what driver_info of the node overrides, and the files on every conductor, " +
				"before one node is tried again.",
			Any: problem(job.FailureIronicImageNotFound), Fails: job.FailureIronicImageNotFound,
			FailsBy: problem(job.FailureIronicImageNotFound, now),
		},
		{
			Signature: string(job.FailureIronicDriverMismatch), Severity: SeverityWarning,
			Summary: "A power cycle was asked of Ironic that only the driver ipmi can do, and the node has another one",
			Advice:  "Change the driver of the node in Ironic first, then ask again.",
			Any:     problem(job.FailureIronicDriverMismatch), Fails: job.FailureIronicDriverMismatch,
			FailsBy: problem(job.FailureIronicDriverMismatch, now),
		},
		{
			Signature: "IRONIC_POWER_FAULT", Severity: SeverityWarning,
			Summary: "Ironic has put the node into maintenance since it cannot read its power state",
			Advice:  "Compare the address and the account of the BMC in driver_info with the node's; Ironic recovers by itself once they are right.",
			Any: []Match{{
				File: node, Where: []Condition{{"fault", Is, []string{"power failure"}}}, Tell: []string{"maintenance_reason"},
			}},
		},
		{
			Signature: "IRONIC_PROVISION_FAILED", Severity: SeverityWarning,
			Summary: "The last action of Ironic on the node has failed",
			Advice:  "Read last_error in node.json and the events before it in history.json of the folder ironic.",
			Any: []Match{{
				File: node, Tell: []string{"last_error", "provision_state"},
				Where: []Condition{{"provision_state", Is, []string{
					"inspect failed", "clean failed", "deploy failed", "adopt failed", "rescue failed", "unrescue failed", "service failed", "error",
				}}},
			}},
		},
	}
}
