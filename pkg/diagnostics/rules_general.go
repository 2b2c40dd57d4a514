// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"slices"

	"github.com/rackbus/rackbus/pkg/job"
)

// SignatureNoFault is given to a node that is healthy in everything that was read.
const SignatureNoFault = "NO_FAULT_FOUND"

// ended matches the failed job's own history by its failure codes.
func ended(codes ...job.FailureCode) []Match {
	values := make([]string, len(codes))
	for i, c := range codes {
		values[i] = string(c)
	}
	return []Match{{
		File: HistoryFile, Each: "events.*", Tell: []string{"failure.message"},
		Where: []Condition{{"failure.failure_code", Is, values}},
	}}
}

// historyRules go by how the job ended that the run looks into.
func historyRules() []Rule {
	return []Rule{
		{
			Signature: "CREDENTIALS_REFUSED", Severity: SeverityWarning,
			Summary: "The node refused our credentials during the job",
			Advice:  "Compare the registered credentials with the node's account, which an update may have reset; then UpdateNode.",
			Any:     ended(job.FailureBMCAuthFailed, job.FailureHostAuthFailed),
		},
		{
			Signature: "NODE_WAS_UNREACHABLE", Severity: SeverityWarning,
			Summary: "The node did not answer during the job, and answers now",
			Advice:  "Look for a restart of the management controller in the logs, and for losses on the management network.",
			Any:     ended(job.FailureBMCUnreachable, job.FailureHostUnreachable, job.FailureDeviceTimeout),
		},
		{
			Signature: "WORKER_LOST", Severity: SeverityInfo,
			Summary: "The job failed on our side, not on the node's",
			Advice:  "Look at the agents of the node's family; the job can be repeated.",
			Any: ended(job.FailureAgentLost, job.FailureAbandoned, job.FailureQueueDeadline, job.FailureCommandLost, job.FailurePanic,
				job.FailureInternal),
		},
		{
			Signature: "CHANGE_INTERRUPTED", Severity: SeverityWarning,
			Summary: "The job was interrupted while the node was being changed",
			Advice:  "Compare firmware.json and the power state with what the job was to reach before anything is repeated.",
			Any:     ended(job.FailureOutcomeUnknown, job.FailureTaskLost),
		},
		{
			Signature: "VERSION_MISMATCH_AFTER_UPDATE", Severity: SeverityWarning,
			Summary: "After the update the node shows another version than the package has",
			Advice:  "Compare firmware.json with the package; an AUX power cycle activates what a restart did not.",
			Any:     ended(job.FailureVersionMismatch, job.FailureActivationFailed),
		},
	}
}

// unwell are signs that a node is not healthy now.
func unwell() []Match {
	resources := func(file, member string, values ...string) Match {
		return Match{
			File: file, Each: "resources.*", Tell: []string{"uri"},
			Where: []Condition{{member, Is, values}},
		}
	}
	return []Match{
		resources("*.json", "body.Status.Health", "Critical", "Warning"),
		resources("*.json", "body.Status.HealthRollup", "Critical", "Warning"),
		{
			File: fileLogs, Each: eachEntry, Recent: createdEntry, DeviceClock: true, Ours: powerTaken,
			Tell:  []string{"Message", "MessageId"},
			Where: []Condition{{"Severity", Is, []string{"Critical"}}},
		},
	}
}

// unread are resources and logs that a collector could not read among others that it
// could.
func unread() []Match {
	failed := []Condition{{"error", IsNot, []string{""}}}
	return []Match{{File: "*.json", Each: "resources.*", Where: failed}, {File: fileLogs, Each: "services.*", Where: failed}}
}

// generalRules say whether a node without a known fault is well.
func generalRules() []Rule {
	return []Rule{
		{
			Signature: "RESOURCE_UNHEALTHY", Severity: SeverityWarning,
			Summary: "A part of the node does not read healthy",
			Advice:  "Look at the resource that is named and at the newest log entries about it.",
			Any:     unwell()[:2],
		},
		{
			Signature: SignatureNoFault, Severity: SeverityInfo,
			Summary: "Everything that was read is healthy.",
			Advice:  "Repeat the job; if it fails again, read its history in the bundle.",
			None:    slices.Concat(unwell(), unread()), Whole: true,
		},
	}
}
