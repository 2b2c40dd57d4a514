// SPDX-License-Identifier: Apache-2.0

package diagnostics

// switchRules go by what NVUE and the fabric controller tell. Actions come last:
// they are kept until the next boot, and their failure may be an old one.
func switchRules() []Rule {
	const image = "nvue/image.json"
	return []Rule{
		{
			Signature: "SWITCH_IMAGE_MISSING", Severity: SeverityCritical,
			Summary: "The partition from which the switch is to boot next has no image",
			Advice:  "Install an image before the switch is restarted: it will not come back otherwise.",
			Any: []Match{{
				File: image, Where: []Condition{{"next_absent", Is, []string{"true"}}}, Tell: []string{"next_partition"},
			}},
		},
		{
			Signature: "SWITCH_IMAGE_MISMATCH", Severity: SeverityWarning,
			Summary: "Another image is installed for the next boot than the one that runs",
			Advice:  "Restart the switch to bring the new image into force, or install the old one again; then compare with the job's target.",
			Any: []Match{{
				File: image, Where: []Condition{{"reboot_due", Is, []string{"true"}}}, Tell: []string{"next_build", "next_partition"},
			}},
		},
		{
			Signature: "SWITCH_FIRMWARE_UNHEALTHY", Severity: SeverityCritical,
			Summary: "A firmware component of the switch does not read healthy",
			Advice:  "Update the component that is named again; if it stays, have the switch examined.",
			Any: []Match{{
				File: "nvue/firmware.json", Each: "components.*", Tell: []string{"name"},
				Where: []Condition{{"health", Is, []string{"Critical", "Warning"}}},
			}},
		},
		{
			Signature: "SWITCH_FIRMWARE_PENDING", Severity: SeverityWarning,
			Summary: "New firmware is installed on the switch and waits for a power cycle",
			Advice:  "Cycle the power of the switch; firmware.json shows which components wait.",
			Any: []Match{{
				File: "nvue/firmware.json", Each: "components.*", Tell: []string{"name"},
				Where: []Condition{{"pending", IsNot, []string{""}}},
			}},
		},
		{
			Signature: "SWITCH_CLUSTER_APP_DOWN", Severity: SeverityCritical,
			Summary: "An app of the cluster does not run although the cluster is on",
			Advice:  "Restart the app; if it stays down, reset the fabric's configuration and configure it again.",
			Any: []Match{{
				File: "nvue/cluster.json", Each: "apps.*", Where: []Condition{{"condition", Is, []string{"down", "not_installed"}}},
				Tell: []string{"told"},
			}},
		},
		{
			Signature: "SWITCH_CONTROLLER_UNREACHABLE", Severity: SeverityWarning,
			Summary: "The fabric controller does not answer although its port is open",
			Advice:  "Compare the certificates of the controller with ours, then restart the app nmx-controller.",
			Any: []Match{{
				File: "fabric.json", Where: []Condition{{"reachable", Is, []string{"false"}}}, Tell: []string{"error"},
			}},
		},
		{
			Signature: "SWITCH_CLUSTER_DISCONNECTED", Severity: SeverityWarning,
			Summary: "The switch has lost its connection to the fabric controller",
			Advice:  "Examine the switch that runs the controller, and the node servers of the cluster.",
			Any: []Match{{
				File: "nvue/cluster.json", Tell: []string{"connection"},
				Where: []Condition{{"enabled", Is, []string{"true"}}, {"connection", Is, []string{"down", "disabled"}}},
			}},
		},
		{
			Signature: "SWITCH_ACTION_FAILED", Severity: SeverityWarning,
			Summary: "An action that was started on the switch has failed",
			Advice:  "Read the action in actions.json; what it was to do has not been done.",
			Any: []Match{{
				File: "nvue/actions.json", Each: "*", Where: []Condition{{"state", Is, []string{"action_error", "action_failed"}}},
				Tell: []string{"issue.*.message", "detail", "status"},
			}},
		},
	}
}
