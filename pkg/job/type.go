// SPDX-License-Identifier: Apache-2.0

package job

import "time"

// Type is what a job does, as its stable snake_case id. The same text labels
// metrics and names spans.
type Type string

// The types of jobs. Their ids are published as metric labels.
const (
	TypeFirmwareUpdate                 Type = "firmware_update"
	TypeSwitchCertificate              Type = "switch_certificate"
	TypeSwitchMtlsDisable              Type = "switch_mtls_disable"
	TypeSwitchSdnFactoryDefaultReset   Type = "switch_sdn_factory_default_reset"
	TypeSwitchFactoryDefaultReset      Type = "switch_factory_default_reset"
	TypeSwitchSystemPasswordUpdate     Type = "switch_system_password_update"
	TypeSwitchSystemImageUpdate        Type = "switch_system_image_update"
	TypeConfigureScaleUpFabricManager2 Type = "configure_scale_up_fabric_manager_v2"
	TypeColdRebootSequence             Type = "cold_reboot_sequence"
	TypeArtifactDownload               Type = "artifact_download"
	TypeFirmwarePlanCheck              Type = "firmware_plan_check"
	TypeSystemValidation               Type = "system_validation"
	TypeNodeDiagnostics                Type = "node_diagnostics"
)

// Wording is how texts for people name a job of some type.
type Wording struct {
	Noun   string
	Plural string
}

// TypeInfo is what holds for every job of a type.
type TypeInfo struct {
	Type Type
	Wording
	// RunLimit is how long a job may run once it is claimed, unless configured.
	RunLimit time.Duration
	// Exclusive says that a node takes one such job at a time, and none beside it.
	Exclusive bool
}

// types lists every type. The run limits are a Rackbus choice: each exceeds the
// longest device timeout of its workflow, for example 3 h of task polling on a switch.
var types = [...]TypeInfo{
	{TypeFirmwareUpdate, Wording{"firmware update", "firmware updates"}, 4 * time.Hour, true},
	{TypeSwitchCertificate, Wording{"switch certificate install", "switch certificate installs"}, time.Hour, true},
	{TypeSwitchMtlsDisable, Wording{"switch mTLS disable", "switch mTLS disables"}, time.Hour, true},
	{TypeSwitchSdnFactoryDefaultReset,
		Wording{"switch SDN factory-default reset", "switch SDN factory-default resets"}, 2 * time.Hour, true},
	{TypeSwitchFactoryDefaultReset,
		Wording{"switch factory-default reset", "switch factory-default resets"}, 2 * time.Hour, true},
	{TypeSwitchSystemPasswordUpdate,
		Wording{"switch system password update", "switch system password updates"}, time.Hour, true},
	{TypeSwitchSystemImageUpdate,
		Wording{"switch system image update", "switch system image updates"}, 3 * time.Hour, true},
	{TypeConfigureScaleUpFabricManager2,
		Wording{"scale-up fabric configuration", "scale-up fabric configurations"}, time.Hour, true},
	{TypeColdRebootSequence, Wording{"cold reboot", "cold reboots"}, 4 * time.Hour, true},
	{TypeArtifactDownload, Wording{"artifact download", "artifact downloads"}, 12 * time.Hour, true},
	{TypeFirmwarePlanCheck, Wording{"firmware plan check", "firmware plan checks"}, time.Minute, false},
	{TypeSystemValidation, Wording{"system validation", "system validations"}, 12 * time.Hour, true},
	// Exclusive, so that nothing of ours changes the node while it is examined.
	{TypeNodeDiagnostics, Wording{"node diagnostics run", "node diagnostics runs"}, 30 * time.Minute, true},
}

// Types returns the properties of every type, in a fresh slice.
func Types() []TypeInfo { return append([]TypeInfo(nil), types[:]...) }

// Info returns the properties of the type, and false for an unknown one.
func (t Type) Info() (TypeInfo, bool) {
	for i := range types {
		if types[i].Type == t {
			return types[i], true
		}
	}
	return TypeInfo{}, false
}

// Wording returns the words for the type; an unknown type is plainly a job.
func (t Type) Wording() Wording {
	if info, ok := t.Info(); ok {
		return info.Wording
	}
	return Wording{Noun: "job", Plural: "jobs"}
}
