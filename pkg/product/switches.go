// SPDX-License-Identifier: Apache-2.0

package product

// switchBMC is the BMC of a switch, through which only its power is driven; its
// updates go through an interface of its own.
func switchBMC() Redfish { return Redfish{SystemID: "System_0", Power: PowerSystem} }

// switchParts are the components of GB200 and GB300 switches: three packages, of
// which two bring several components.
func switchParts() []Component {
	return []Component{
		switchPart("BMC+FPGA+EROT", "BMC", "bmc"),
		switchPart("BMC+FPGA+EROT", "FPGA", "fpga"),
		switchPart("BMC+FPGA+EROT", "EROT", "erot"),
		switchPart("CPLD", "CPLD", "cpld"),
		switchPart("SBIOS+EROT", "BIOS", "bios"),
	}
}

// SourceBundle is the one package of VR NVL72 switches in manifests.
const SourceBundle = "BMC+CPLD+SMA+ERoT+SBIOS"

// switchBundle are the components of VR NVL72 switches, all from one package.
func switchBundle() []Component {
	return []Component{
		switchPart(SourceBundle, "BMC", "bmc"),
		switchPart(SourceBundle, "BIOS", "bios"),
		switchPart(SourceBundle, "SMA", "sma"),
		switchPart(SourceBundle, "EROT", "erot"),
		switchPart(SourceBundle, "CPLD", "cpld1"),
	}
}

// switchPart is a component of a switch, whose agent knows where its version is
// shown.
func switchPart(source, key, target string) Component {
	return Component{Source: source, Key: key, Target: target, ByDefault: true}
}
