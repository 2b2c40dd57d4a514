// SPDX-License-Identifier: Apache-2.0

package access

import (
	"iter"
	"maps"
	"slices"
)

// Rule is what a call of one RPC needs.
type Rule struct {
	// Least is the least role that may call it.
	Least Role
	// Changes says that it changes hardware, jobs or what is stored; every such
	// call leaves an audit record.
	Changes bool
}

// What calls need. Every published RPC is within the reach of an operator, because
// its clients know of no roles.
var (
	anybody  = Rule{Least: None}
	reads    = Rule{Least: Viewer}
	changes  = Rule{Least: Operator, Changes: true}
	inspects = Rule{Least: Admin}
)

// Prefixes of the methods of a service.
const (
	published   = "/rack_manager.RackManager/"
	publishedV2 = "/rack_manager_v2.RackManagerV2/"
	jobs        = "/rackbus.v1.Jobs/"
	firmware    = "/rackbus.v1.Firmware/"
	audit       = "/rackbus.v1.Access/"
)

// rules is the least role of every RPC that the API serves. What is not listed is
// refused.
var rules = map[string]Rule{
	published + "GetPowerState":                             reads,
	published + "BatchGetPowerState":                        reads,
	published + "ListNodeInventory":                         reads,
	published + "ListRacks":                                 reads,
	published + "GetNodeDeviceInfo":                         reads,
	published + "ListNodeDeviceInfoByNodeType":              reads,
	published + "BatchGetNodeDeviceInfo":                    reads,
	published + "GetNodeFirmwareInventory":                  reads,
	published + "BatchGetFirmwareInventory":                 reads,
	published + "GetRackFirmwareInventory":                  reads,
	published + "CompareFirmwareObject":                     reads,
	published + "GetFirmwareObject":                         reads,
	published + "ListFirmwareObjects":                       reads,
	published + "GetFirmwareObjectHistory":                  reads,
	published + "ListSwitchFirmware":                        reads,
	published + "ListSwitchSystemImages":                    reads,
	published + "GetScaleUpFabricStatus":                    reads,
	published + "BatchGetScaleUpFabricServiceStatus":        reads,
	published + "GetScaleUpFabricState":                     reads,
	published + "GetConfigureSwitchCertificateJobStatus":    reads,
	published + "GetSwitchSystemImageJobStatus":             reads,
	published + "BatchCollectSwitchSpdmAttestationEvidence": reads,
	published + "GetVersion":                                reads,
	published + "GetFirmwareJobStatus":                      reads,
	published + "GetJobStatus":                              reads,

	published + "SetPowerState":                           changes,
	published + "BatchSetPowerState":                      changes,
	published + "ExecuteColdReboot":                       changes,
	published + "CreateNodes":                             changes,
	published + "UpdateNode":                              changes,
	published + "DeleteNode":                              changes,
	published + "UpdateFirmware":                          changes,
	published + "BatchUpdateFirmwareByNodeType":           changes,
	published + "BatchUpdateFirmware":                     changes,
	published + "UpdateSwitchSystemImage":                 changes,
	published + "AddFirmwareObject":                       changes,
	published + "DeleteFirmwareObject":                    changes,
	published + "SetDefaultFirmwareObject":                changes,
	published + "ApplyStoredFirmwareObject":               changes,
	published + "ApplyFirmwareObject":                     changes,
	published + "ApplySwitchSystemImage":                  changes,
	published + "ApplyStoredSwitchSystemImage":            changes,
	published + "PushSwitchFirmware":                      changes,
	published + "BatchResetSwitchFactoryDefault":          changes,
	published + "BatchResetSwitchSdnFactoryDefault":       changes,
	published + "ConfigureScaleUpFabricManager":           changes,
	published + "BatchSetScaleUpFabricState":              changes,
	published + "SetScaleUpFabricTelemetryInterfaceState": changes,
	published + "ConfigureSwitchCertificate":              changes,
	published + "BatchDisableSwitchMtls":                  changes,
	published + "UpdateSwitchSystemPassword":              changes,

	publishedV2 + "ConfigureScaleUpFabricManager": changes,
	publishedV2 + "StartSystemValidation":         changes,

	jobs + "ListJobs":             reads,
	jobs + "GetJob":               reads,
	jobs + "WatchJobs":            reads,
	jobs + "GetJobEvents":         reads,
	jobs + "GetEvidence":          reads,
	jobs + "CancelJob":            changes,
	jobs + "StartNodeDiagnostics": changes,
	jobs + "PauseRollout":         changes,
	jobs + "ResumeRollout":        changes,
	jobs + "AbortRollout":         changes,

	firmware + "GetFirmwarePlan":             reads,
	firmware + "GetFirmwareObjectStatus":     reads,
	firmware + "CheckFirmwarePlan":           changes, // it stores the plan
	firmware + "ApplyFirmwarePlan":           changes,
	firmware + "RetryFirmwareObjectDownload": changes,

	audit + "WhoAmI":           reads,
	audit + "ListAuditRecords": inspects,

	// Whoever may connect may ask whether the service is well.
	"/grpc.health.v1.Health/Check": anybody,
	"/grpc.health.v1.Health/List":  anybody,
	"/grpc.health.v1.Health/Watch": anybody,

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      reads,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": reads,
}

// RuleOf returns what a call of the RPC with the full name needs. One that is not
// known must be refused.
func RuleOf(method string) (Rule, bool) {
	r, ok := rules[method]
	return r, ok
}

// Methods returns the full names of all RPCs that have a rule, in order.
func Methods() iter.Seq[string] { return slices.Values(slices.Sorted(maps.Keys(rules))) }

// LeastForForce is the least role that may act on a node beside the job that
// holds it.
const LeastForForce = Admin

// MayForce tells whether an RPC can be asked to act beside the job that holds its
// node.
func MayForce(method string) bool {
	return method == published+"SetPowerState" || method == published+"BatchSetPowerState"
}
