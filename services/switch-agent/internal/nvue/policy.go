// SPDX-License-Identifier: Apache-2.0

package nvue

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// ActionVerdict is what an action has come to.
type ActionVerdict uint8

// The verdicts.
const (
	// ActionRunning: the switch is not done.
	ActionRunning ActionVerdict = iota
	// ActionSucceeded: the switch says it is done.
	ActionSucceeded
	// ActionHandedOff: the switch is going down to finish the work. Whether it
	// succeeded shows after the reboot.
	ActionHandedOff
	// ActionFailed: the switch says it failed.
	ActionFailed
	// ActionVanished: the switch does not know the action (any more).
	ActionVanished
)

// String returns the name of the verdict.
func (v ActionVerdict) String() string {
	switch v {
	case ActionRunning:
		return "running"
	case ActionSucceeded:
		return "succeeded"
	case ActionHandedOff:
		return "handed_off"
	case ActionFailed:
		return "failed"
	case ActionVanished:
		return "vanished"
	default:
		return "unknown"
	}
}

// ActionPolicy says how the state and the texts of an action are judged.
type ActionPolicy struct {
	// Succeeds and Runs are states, in lower case. A state that is in neither, and
	// does not speak of a failure, is Other.
	Succeeds []string
	Runs     []string
	Other    ActionVerdict
	// Empty is the verdict on an answer without a state.
	Empty ActionVerdict
	// StatusIsState takes "status" for a missing "state".
	StatusIsState bool
	// FullErrorSucceeds lets action_error at 100 % pass: the switch ends its own
	// action when it goes down.
	FullErrorSucceeds bool
	// Reboots are texts, in lower case, that say in "status", and in the other texts
	// of an action_error without issue, that the switch is going down.
	Reboots []string
	// Farewells are texts, in lower case, that say so wherever they stand.
	Farewells []string
	// Nothing are texts, in lower case, of an issue that says there was nothing to
	// do.
	Nothing []string
}

// StrictActions is the policy for actions that do not reboot the switch: imports,
// the start and stop of apps, their settings, SDN reset. action_error is a
// failure, whatever it says.
func StrictActions() ActionPolicy {
	return ActionPolicy{
		Succeeds:      []string{"action_success", "success", "complete", "completed"},
		Runs:          []string{"action_running", "running", "start", "inactive"},
		Other:         ActionRunning,
		StatusIsState: true,
	}
}

// ImageActions is the policy for the system image: uninstall and install.
func ImageActions() ActionPolicy {
	p := StrictActions()
	p.FullErrorSucceeds = true
	p.Reboots = []string{"power cycle", "reboot", "system is offline"}
	p.Farewells = []string{"disconnecting from nvos", "offline during reboot", "system is offline"}
	p.Nothing = []string{"nothing to uninstall"}
	return p
}

// FirmwareActions is the policy for the firmware of components. A state nobody
// knows is a failure.
func FirmwareActions() ActionPolicy {
	p := ImageActions()
	p.Other = ActionFailed
	p.Nothing = nil
	return p
}

// EvidenceActions is the policy for SPDM evidence: only action_success will do.
func EvidenceActions() ActionPolicy {
	p := StrictActions()
	p.Succeeds = []string{"action_success"}
	p.Other, p.Empty, p.StatusIsState = ActionFailed, ActionFailed, false
	return p
}

// judge reads one answer to GET /nvue_v1/action/<id>.
func (p ActionPolicy) judge(raw json.RawMessage) ActionStatus {
	d := asDocument(raw)
	s := ActionStatus{
		State: d.text("state"), Status: d.text("status"), Detail: d.text("detail"),
		Issue: issueText(d["issue"]), Percent: percent(d),
	}
	if s.State == "" && p.StatusIsState {
		s.State = s.Status
	}
	s.Verdict = p.verdict(s)
	if s.Verdict == ActionSucceeded || s.Verdict == ActionHandedOff {
		s.Percent = 100
	}
	return s
}

func (p ActionPolicy) verdict(s ActionStatus) ActionVerdict {
	state := strings.ToLower(strings.TrimSpace(s.State))
	switch {
	case state == "action_error":
		return p.afterError(s)
	case slices.Contains(p.Succeeds, state):
		return ActionSucceeded
	case containsAny(s.Detail+"\n"+s.Status+"\n"+s.Issue, p.Farewells):
		return ActionHandedOff
	case speaksOfFailure(state):
		return ActionFailed
	case containsAny(s.Status, p.Reboots):
		return ActionHandedOff
	case slices.Contains(p.Runs, state):
		return ActionRunning
	case state == "":
		return p.Empty
	default:
		return p.Other
	}
}

// afterError judges action_error, with which a switch also ends what it could
// not report on because it went down.
func (p ActionPolicy) afterError(s ActionStatus) ActionVerdict {
	texts := s.Detail + "\n" + s.Status
	switch {
	case containsAny(s.Issue, p.Nothing):
		return ActionSucceeded
	case containsAny(texts+"\n"+s.Issue, p.Farewells), s.Issue == "" && containsAny(texts, p.Reboots):
		return ActionHandedOff
	case p.FullErrorSucceeds && s.Percent >= 100:
		return ActionSucceeded
	default:
		return ActionFailed
	}
}

// speaksOfFailure covers action_failed and states nobody has documented. A
// "state" of several words is prose from "status", which proves nothing.
func speaksOfFailure(state string) bool {
	return !strings.Contains(state, " ") && containsAny(state, []string{"fail", "error", "abort", "cancel", "reject", "invalid", "timeout", "timed_out"})
}

func containsAny(text string, parts []string) bool {
	if len(parts) == 0 || text == "" {
		return false
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
}

// percent reads a number or a text such as "100%", -1 when there is none.
func percent(d document) int {
	text := strings.TrimSpace(d.first("percentage", "percent", "PercentComplete"))
	f, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil || !(f >= 0) {
		return -1
	}
	return int(min(f, 100))
}
