// SPDX-License-Identifier: Apache-2.0

package nvswitch

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/rackbus/rackbus/sim/internal/glob"
	"github.com/rackbus/rackbus/sim/internal/jsonduration"
)

// Knobs are named misbehaviours of a switch. The zero value is a healthy one. What has a Remaining counts down when it
// is used; 0 is always.
type Knobs struct {
	// Refuse are the services that refuse connections: nvue, ssh, nmxc, telemetry, gnmi, bmc.
	Refuse []string `json:"refuse,omitempty"`
	// Garbage are the services that answer new connections with bytes that are neither TLS, HTTP nor SSH.
	Garbage []string `json:"garbage,omitempty"`

	// RevisionForm is how revisions are shown; empty is keyed by their id.
	RevisionForm RevisionForm `json:"revision_form,omitempty"`
	// RevisionDone is the state of an applied revision; empty is "applied", another is "applied_and_saved", which
	// also saves.
	RevisionDone string `json:"revision_done,omitempty"`
	// ApplyPolls is how many reads still show "apply" after a revision has come into effect.
	ApplyPolls int `json:"apply_polls,omitempty"`
	// Revisions make applies end otherwise; the first that matches counts.
	Revisions []RevisionRule `json:"revisions,omitempty"`
	// Actions make actions end otherwise; the first that matches counts.
	Actions []ActionRule `json:"actions,omitempty"`

	// BootImage is the build id that runs after the next reboots, whatever was installed.
	BootImage string `json:"boot_image,omitempty"`
	// BootOldImage keeps the current image over reboots.
	BootOldImage bool `json:"boot_old_image,omitempty"`
	// NeverBack keeps the switch away once it has gone down.
	NeverBack bool `json:"never_back,omitempty"`
	// InstallExpiresAdmin makes the first boot of a new image bring back the expired password of the factory.
	InstallExpiresAdmin bool `json:"install_expires_admin,omitempty"`
	// NewHostKey gives the switch another SSH host key with an installed image and with a factory reset.
	NewHostKey bool `json:"new_host_key,omitempty"`
	// OpenAfterReset leaves the factory's password unexpired after a factory reset, so that NVUE takes it.
	OpenAfterReset bool `json:"open_after_reset,omitempty"`
	// NoBootID keeps the switch from telling one boot from another in /proc/sys/kernel/random/boot_id.
	NoBootID bool `json:"no_boot_id,omitempty"`
	// FirmwareUnchanged drops installed firmware versions at the power cycle.
	FirmwareUnchanged bool `json:"firmware_unchanged,omitempty"`

	// Controller keeps the control plane in a state.
	Controller *ControllerFault `json:"controller,omitempty"`
	// ManagerStuck makes updates of an app's manager state succeed without effect.
	ManagerStuck bool `json:"manager_stuck,omitempty"`
	// ManagerState is shown for a manager that is on; empty is "enabled", others are "start" and "active".
	ManagerState string `json:"manager_state,omitempty"`
	// SDNReset is what the factory reset of the controller looks like.
	SDNReset SDNReset `json:"sdn_reset,omitempty"`
	// SDNReport is what is wrong with the reports of the controller's connections.
	SDNReport SDNReport `json:"sdn_report,omitempty"`
	// SDNPeerStates replaces members of each connection in the report, for example {"kaState": "X"}.
	SDNPeerStates map[string]any `json:"sdn_peer_states,omitempty"`
	// EmptyEvidence are SPDM components whose measurements and certificates are empty objects.
	EmptyEvidence []string `json:"empty_evidence,omitempty"`

	// Commands are rules for SSH command lines; the first that matches counts.
	Commands []CommandRule `json:"commands,omitempty"`
	// LoginDelay passes before a password is judged.
	LoginDelay Duration `json:"login_delay,omitempty"`
	// PasswordChange is how the terminal of an expired user behaves.
	PasswordChange PasswordChange `json:"password_change,omitempty"`
	// RetypePrompt is the second prompt; empty is "Retype new password: ".
	RetypePrompt string `json:"retype_prompt,omitempty"`
	// GNMIUnset is which forms of "nv unset system gnmi-server mtls" the switch knows; empty is all.
	GNMIUnset GNMIUnset `json:"gnmi_unset,omitempty"`
	// SFTP are misbehaviours of file transfers.
	SFTP SFTPKnobs `json:"sftp,omitzero"`

	// NMXC are misbehaviours of the controller's gRPC service.
	NMXC NMXCKnobs `json:"nmxc,omitzero"`
	// GNMIUnavailable is how many calls of gNMI answer UNAVAILABLE; negative is all.
	GNMIUnavailable int `json:"gnmi_unavailable,omitempty"`

	// PowerReported is the PowerState that the BMC shows.
	PowerReported string `json:"power_reported,omitempty"`
	// PowerIgnored makes the BMC accept resets without doing anything.
	PowerIgnored bool `json:"power_ignored,omitempty"`
}

// Duration is a time.Duration whose JSON form is Go's duration text or a number of seconds.
type Duration = jsonduration.Duration

// RevisionForm is how revisions are shown.
type RevisionForm string

// Forms of revisions: an object keyed by the id, the members themselves with "revision-id", and, for new revisions
// only, the id as a string or number.
const (
	RevisionKeyed  RevisionForm = ""
	RevisionFlat   RevisionForm = "flat"
	RevisionString RevisionForm = "string"
	RevisionNumber RevisionForm = "number"
)

// RevisionRule makes applies end otherwise.
type RevisionRule struct {
	// Path is a pattern for a path that the revision changes, without "/nvue_v1", for example "/system/aaa/**"; empty
	// is every revision.
	Path string `json:"path,omitempty"`
	// State is what the revision shows and keeps, for example "failed", "invalid", "ays_fail" or "apply".
	State string `json:"state"`
	// Issue is the text in its transition.
	Issue string `json:"issue,omitempty"`
	// Effect has the change come into effect all the same.
	Effect    bool `json:"effect,omitempty"`
	Remaining int  `json:"remaining,omitempty"`
}

// ActionRule makes actions end otherwise.
type ActionRule struct {
	// Resource is a pattern for the path of the POST without "/nvue_v1", for example "/system/image/**"; empty is all.
	Resource string `json:"resource,omitempty"`
	// Verb is for example "@install"; empty is all.
	Verb string `json:"verb,omitempty"`
	// Contains is a part of the parameters' JSON.
	Contains string `json:"contains,omitempty"`
	// Script are the answers to reads of the action, one after the other; the last stays. Empty is the usual ones.
	Script []json.RawMessage `json:"script,omitempty"`
	// NoEffect has the action change nothing.
	NoEffect bool `json:"no_effect,omitempty"`
	// NoID answers the POST with an empty object.
	NoID bool `json:"no_id,omitempty"`
	// Missing answers reads of the action with 404.
	Missing bool `json:"missing,omitempty"`
	// Takes is how long the action takes, if not its usual time.
	Takes     Duration `json:"takes,omitempty"`
	Remaining int      `json:"remaining,omitempty"`
}

// ControllerFault keeps the control plane of nmx-controller in a state.
type ControllerFault struct {
	// State is for example "CONTROL_PLANE_STATE_UNCONFIGURED"; empty shows none at all.
	State string `json:"state"`
	// Status is the app's status; empty is the true one.
	Status string `json:"status,omitempty"`
	// Restarts is after how many starts of the app the fault is gone; 0 is never.
	Restarts int `json:"restarts,omitempty"`
}

// SDNReset is what the factory reset of the controller looks like.
type SDNReset string

// Looks of the reset: its progress shows for Timing.SDNReset (the usual one), never, or for ever; the app answers 404
// at once or after some progress; it shows no state at all.
const (
	SDNResetShown       SDNReset = ""
	SDNResetQuiet       SDNReset = "quiet"
	SDNResetStuck       SDNReset = "stuck"
	SDNResetAbsent      SDNReset = "absent"
	SDNResetVanishes    SDNReset = "vanishes"
	SDNResetWithoutInfo SDNReset = "without-info"
)

// SDNReport is what is wrong with the reports of the controller's connections.
type SDNReport string

// Faults of reports: no new file, a name that is not allowed, no JSON, a connection that is down, a missing peer, a
// chassis mismatch.
const (
	SDNReportStale     SDNReport = "stale"
	SDNReportBadName   SDNReport = "bad-name"
	SDNReportMalformed SDNReport = "malformed"
	SDNReportDown      SDNReport = "down"
	SDNReportNoPeer    SDNReport = "missing-peer"
	SDNReportMismatch  SDNReport = "mismatch"
)

// CommandRule changes what SSH command lines do.
type CommandRule struct {
	// Match is a part of the command line.
	Match string `json:"match"`
	// Delay passes first.
	Delay Duration `json:"delay,omitempty"`
	// Hang never answers. Cut closes the connection, NoExitStatus only the channel, without an answer.
	Hang         bool `json:"hang,omitempty"`
	Cut          bool `json:"cut,omitempty"`
	NoExitStatus bool `json:"no_exit_status,omitempty"`
	// Execute does what the line says before Cut, NoExitStatus or the answer below.
	Execute bool `json:"execute,omitempty"`
	// Answer replaces the answer by the three below.
	Answer    bool   `json:"answer,omitempty"`
	Exit      int    `json:"exit,omitempty"`
	Stdout    string `json:"stdout,omitempty"`
	Stderr    string `json:"stderr,omitempty"`
	Remaining int    `json:"remaining,omitempty"`
}

// PasswordChange is how the terminal of an expired user behaves.
type PasswordChange string

// Ways of a password change: it works and says so in one of three texts, or closes without a text; it is refused in
// one of four texts; the terminal closes after the first answer, or never says anything.
const (
	PasswordUpdated     PasswordChange = ""
	PasswordUpdatedAlso PasswordChange = "password-updated"
	PasswordChanged     PasswordChange = "changed"
	PasswordSilent      PasswordChange = "silent"
	PasswordTokenError  PasswordChange = "token-error"
	PasswordBad         PasswordChange = "bad"
	PasswordUnchanged   PasswordChange = "unchanged"
	PasswordSetting     PasswordChange = "failure-setting"
	PasswordEarlyClose  PasswordChange = "early-close"
	PasswordHang        PasswordChange = "hang"
)

// GNMIUnset is which forms of "nv unset system gnmi-server mtls" the switch knows.
type GNMIUnset string

// Forms: both, only the one with ca-certificate, none at all.
const (
	GNMIUnsetAll    GNMIUnset = ""
	GNMIUnsetCAOnly GNMIUnset = "ca-only"
	GNMIUnsetAbsent GNMIUnset = "absent"
)

// SFTPKnobs are misbehaviours of file transfers.
type SFTPKnobs struct {
	// RefuseSubsystem is how many requests for the subsystem are refused; negative is all.
	RefuseSubsystem int `json:"refuse_subsystem,omitempty"`
	// StallAfter takes so many bytes of each upload and no more.
	StallAfter int64 `json:"stall_after,omitempty"`
	// CutAfter closes the connection after so many bytes of an upload, Cuts times; 0 is always.
	CutAfter int64 `json:"cut_after,omitempty"`
	Cuts     int   `json:"cuts,omitempty"`
	// FailAfter fails writes after so many bytes, as a full disk does.
	FailAfter int64 `json:"fail_after,omitempty"`
	// TruncateAfter accepts further bytes without storing them.
	TruncateAfter int64 `json:"truncate_after,omitempty"`
	// Corrupt stores the first byte of each file changed.
	Corrupt bool `json:"corrupt,omitempty"`
	// BytesPerSecond throttles uploads.
	BytesPerSecond int64 `json:"bytes_per_second,omitempty"`
	// NoSize tells no size of files.
	NoSize bool `json:"no_size,omitempty"`
	// NoStat fails every question for a file.
	NoStat bool `json:"no_stat,omitempty"`
	// Denied are patterns for paths that cannot be opened.
	Denied []string `json:"denied,omitempty"`
	// NoRename refuses renames.
	NoRename bool `json:"no_rename,omitempty"`
}

// NMXCKnobs are misbehaviours of the controller's gRPC service.
type NMXCKnobs struct {
	// HelloUnavailable is how many Hellos answer UNAVAILABLE; negative is all.
	HelloUnavailable int `json:"hello_unavailable,omitempty"`
	// HelloCode, GetCode and SetCode are return codes instead of the true ones.
	HelloCode int32 `json:"hello_code,omitempty"`
	GetCode   int32 `json:"get_code,omitempty"`
	SetCode   int32 `json:"set_code,omitempty"`
	// SetStores stores values although SetCode says otherwise.
	SetStores bool `json:"set_stores,omitempty"`
	// SetIgnored answers success without storing; it is gone after SetIgnoredRestarts starts of the app, 0 is never.
	SetIgnored         bool `json:"set_ignored,omitempty"`
	SetIgnoredRestarts int  `json:"set_ignored_restarts,omitempty"`
	// GatewayID is the only gateway that is known; empty knows all that have a name.
	GatewayID string `json:"gateway_id,omitempty"`
	// HelloFirst refuses other calls on connections that have not said Hello.
	HelloFirst bool `json:"hello_first,omitempty"`
	// NoHeader leaves out the header of all answers.
	NoHeader bool `json:"no_header,omitempty"`
	// ValuesOutside puts the values of keys beside the static configuration.
	ValuesOutside bool `json:"values_outside,omitempty"`
	// Delay passes before each call.
	Delay Duration `json:"delay,omitempty"`
}

// spend counts a knob down and reports whether it was still up; a negative one stays.
func spend(n *int) bool {
	if *n == 0 {
		return false
	}
	if *n > 0 {
		*n--
	}
	return true
}

// takeRule returns the first rule that matches and counts one use of it; remaining finds the count in a rule.
func takeRule[R any](rules *[]R, match func(R) bool, remaining func(*R) *int) (R, bool) {
	at := slices.IndexFunc(*rules, match)
	if at < 0 {
		var none R
		return none, false
	}
	found := (*rules)[at]
	switch left := remaining(&(*rules)[at]); *left {
	case 0:
	case 1:
		*rules = slices.Delete(slices.Clone(*rules), at, at+1)
	default:
		*left--
	}
	return found, true
}

func (s *Switch) takeAction(resource, verb, parameters string) (ActionRule, bool) {
	return takeRule(&s.knobs.Actions, func(r ActionRule) bool {
		return glob.Compile(r.Resource).Match(resource) && (r.Verb == "" || r.Verb == verb) &&
			strings.Contains(parameters, r.Contains)
	}, func(r *ActionRule) *int { return &r.Remaining })
}

func (s *Switch) takeRevision(paths []string) (RevisionRule, bool) {
	return takeRule(&s.knobs.Revisions, func(r RevisionRule) bool {
		return r.Path == "" || slices.ContainsFunc(paths, glob.Compile(r.Path).Match)
	}, func(r *RevisionRule) *int { return &r.Remaining })
}

func (s *Switch) takeCommand(line string) (CommandRule, bool) {
	return takeRule(&s.knobs.Commands, func(r CommandRule) bool { return strings.Contains(line, r.Match) },
		func(r *CommandRule) *int { return &r.Remaining })
}

// Knobs returns the knobs as they are set, with what remains of them.
func (s *Switch) Knobs() Knobs {
	s.lock()
	defer s.mu.Unlock()
	k := s.knobs
	k.Revisions, k.Actions, k.Commands = slices.Clone(k.Revisions), slices.Clone(k.Actions), slices.Clone(k.Commands)
	return k
}

// SetKnobs replaces all knobs.
func (s *Switch) SetKnobs(k Knobs) {
	s.lock()
	k.Revisions, k.Actions, k.Commands = slices.Clone(k.Revisions), slices.Clone(k.Actions), slices.Clone(k.Commands)
	s.knobs = k
	s.mu.Unlock()
	s.Reconcile()
}

// UpdateKnobs changes some knobs.
func (s *Switch) UpdateKnobs(change func(*Knobs)) {
	k := s.Knobs()
	change(&k)
	s.SetKnobs(k)
}

// Timing returns how long things take.
func (s *Switch) Timing() Timing {
	s.lock()
	defer s.mu.Unlock()
	return s.timing
}

// SetTiming changes how long things take from now on; what is under way keeps its time.
func (s *Switch) SetTiming(t Timing) {
	s.lock()
	defer s.mu.Unlock()
	s.timing = t.withDefaults()
}

func wait(d Duration) time.Duration { return time.Duration(d) }
