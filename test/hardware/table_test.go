// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"strings"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// cited is a test by the folder of its package and its name, as go test prints it.
type cited struct{ folder, name string }

// row is one operation of a node type: what it does, and the tests that show it.
type row struct {
	operation, outcome string
	tests              []cited
}

// Folders of the tests.
const (
	trays    = "services/compute-agent"
	shelves  = "services/powershelf-agent"
	client   = "pkg/redfish"
	planning = "pkg/firmware/flashplan"
	whole    = "test/e2e"
)

// operations are the power operations in the order of the published enum.
func operations() []redfish.PowerOp {
	return []redfish.PowerOp{
		redfish.PowerOff, redfish.PowerOn, redfish.PowerReset, redfish.PowerForceOff, redfish.PowerForceOn,
		redfish.PowerGracefulShutdown, redfish.PowerGracefulRestart, redfish.PowerForceRestart,
	}
}

// hardware are the node types of the table: all but switches.
func hardware() []node.Type {
	var out []node.Type
	for _, t := range node.Types() {
		if t.Family != node.FamilySwitch {
			out = append(out, t)
		}
	}
	return out
}

// rows is everything about a node type.
func rows(t node.Type) []row {
	agent := trays
	if t.Family == node.FamilyPowerShelf {
		agent = shelves
	}
	inAgent := func(operation string) cited { return cited{agent, "TestHardware/" + t.ID + "/" + operation} }
	out := []row{{"power read", "ON, OFF, or UNKNOWN", []cited{inAgent("power_get")}}}
	for i, op := range operations() {
		out = append(out, row{"power " + op.String(), powerOutcomes(t)[i], []cited{
			inAgent("power_set_" + strings.ToLower(op.String())),
			{client, "TestPowerOperationsOfEveryType/" + t.ID + "_" + op.String()},
		}})
	}
	info := row{"device info", "chassis serial number, slot, tray index", []cited{inAgent("device_info"), {client, "TestDeviceInfoOfEveryTray"}}}
	if agent == shelves {
		info = row{"device info", "none: a shelf has no place in the NVLink topology", []cited{inAgent("device_info")}}
	}
	const all = "update_activate_verify"
	out = append(out, info,
		row{"firmware inventory", "every entry with its version", []cited{inAgent("inventory")}},
		row{"update", updateOutcome(t), []cited{inAgent(all), {whole, "TestMixedRack/apply_stored"}, {whole, "TestMixedRack/apply"}}},
		row{"activation", activationOutcome(t), []cited{inAgent(all), {client, "TestActivationOfEveryType"}}},
		row{"verification", "installed versions are those of the packages", []cited{inAgent(all), {whole, "TestMixedRack/compare_between"}}},
		row{"takeover after a crash", "in each stage (make test-long; a sample in make test): no second upload, right end", crashTests(t)},
	)
	if agent == trays {
		out = append(out, inBand(t))
	}
	return append(out,
		row{"cold reboot", coldRebootOutcome(t), []cited{{whole, "TestColdRebootOfEveryType/" + t.ID}}},
		particulars(t),
	)
}

// powerOutcomes are what a type is sent for the operations, in their order.
func powerOutcomes(t node.Type) []string {
	const refused = "refused, nothing is sent"
	switch {
	case t.Family == node.FamilyCompute:
		return []string{
			"`GracefulShutdown`", "`On`", "`PowerCycle`", "`ForceOff`", "`ForceOn`", "`GracefulShutdown`", "`GracefulRestart`", "`ForceRestart`",
		}
	case t.Vendor == "delta":
		const off, on = "`PowerEquipment` off", "`PowerEquipment` on"
		return []string{off, on, refused, off, on, refused, refused, refused}
	default:
		return []string{
			"`Chassis.Reset` `GracefulShutdown`", "`Chassis.On`", refused, "`Chassis.ForceOff`", "`Chassis.On`", refused, refused, refused,
		}
	}
}

func updateOutcome(t node.Type) string {
	switch {
	case t.Family == node.FamilyCompute && t.Vendor == "supermicro":
		return "HMC, BIOS, BMC, each in force before the next"
	case t.Family == node.FamilyCompute && t.Vendor == "lenovo":
		return "HMC, then BMC, each with its OEM part"
	case t.Family == node.FamilyCompute:
		return "HMC, then BMC"
	default:
		return "controller, then all power supplies"
	}
}

func activationOutcome(t node.Type) string {
	switch {
	case t.Family == node.FamilyPowerShelf:
		return "manager reset; the power stays on"
	case t.ProductFamily == "gb200":
		return "host off, AUX power cycle, settle, host on"
	case t.Vendor == "supermicro":
		return "as other GB300 trays, once for HMC and once for BIOS; the BMC restarts itself"
	default:
		return "host off, AUX power cycle, wait for the BMC, host on until it is"
	}
}

func coldRebootOutcome(t node.Type) string {
	if t.Family == node.FamilyPowerShelf {
		return "OFF, then ON"
	}
	return "graceful shutdown, unreachable, reachable, ON"
}

// crashTests kill the agent in each stage of a type's way of updating.
func crashTests(t node.Type) []cited {
	const each = "TestAgentDiesInEachStage/"
	switch {
	case t.Family == node.FamilyPowerShelf && t.Vendor == "liteon":
		return []cited{{shelves, "TestAgentDies"}, {shelves, "TestAgentDiesAtASupply"}}
	case t.Family == node.FamilyPowerShelf:
		return []cited{{shelves, "TestAgentDies"}}
	case t.ProductFamily == "gb200":
		return []cited{{trays, each + "GB200"}}
	case t.Vendor == "lenovo":
		return []cited{{trays, each + "Lenovo"}}
	case t.Vendor == "supermicro":
		return []cited{{trays, each + "Supermicro"}}
	default:
		return []cited{{trays, "TestAgentDies"}}
	}
}

func inBand(t node.Type) row {
	const operation = "network devices, in-band"
	if t.InBand {
		return row{operation, "CX7, CX8 and BF3_NIC with Flint, before the other packages", []cited{{trays, "TestFlint"}, {trays, "TestFlintMixed"}}}
	}
	return row{operation, "refused", []cited{{planning, "TestEveryNodeTypeIsPlanned"}}}
}

// particulars are what a type has for itself.
func particulars(t node.Type) row {
	r := row{operation: "particulars"}
	switch t.Vendor + " " + t.ProductFamily {
	case "wiwynn gb200":
		r.outcome, r.tests = "`FW_BMC_1` shows no version", []cited{{client, "TestSilentEntriesAreNotCompared"}}
	case "lenovo gb300":
		r.outcome = "the BMC keeps its configuration; two systems with a reset action"
		r.tests = []cited{{trays, "TestLenovoKeepsItsConfiguration"}, {trays, "TestLenovoThatForgetsIsNotUpdated"}, {client, "TestLenovoCommandAndWaitLookAtTheHost"}}
	case "supermicro gb300":
		r.outcome = "the order of packages; the BMC forgets its task"
		r.tests = []cited{{trays, "TestSupermicroOrder"}, {trays, "TestSupermicroLostTaskWithOldVersion"}}
	case "nvidia vrnvl72":
		r.outcome, r.tests = "alike devices of different SKUs", []cited{{client, "TestSKUDecidesBetweenLikeDevices"}}
	case "nvidia gb200":
		r.outcome, r.tests = "the host may need a second power-on", []cited{{client, "TestActivationGB200"}, {client, "TestActivationGB200GetsASecondRound"}}
	case "nvidia gb300":
		r.outcome, r.tests = "power-on is repeated while the host reads Off", []cited{{client, "TestH4ActivationGB300RepeatsOn"}}
	case "liteon gb200", "liteon gb300":
		r.outcome = "hand-off at the reset; supplies at once, then one by one"
		r.tests = []cited{{shelves, "TestHandoff"}, {shelves, "TestSuppliesAtOnce"}, {shelves, "TestSuppliesAreRefusedTogether"}, {client, "TestValidatePowerUnits"}}
	case "delta gb200", "delta gb300":
		r.outcome = "power by its supplies; the controller restarts during the update"
		r.tests = []cited{{client, "TestDeltaPowerState"}, {client, "TestDeltaActivationRestartsItsController"}}
	}
	return r
}
