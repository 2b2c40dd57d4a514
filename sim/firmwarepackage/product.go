// SPDX-License-Identifier: Apache-2.0

package firmwarepackage

import (
	"encoding/hex"
	"fmt"
)

// deltaPMC is the UUID of controllers of Delta shelves.
const deltaPMC = "0b4e248c8bcf41379b99d0394c808ba5"

// Product returns the package of a product by its number, with all its components at a release. The versions are in
// Spec.Components; what the package is called is its Version, and its file FileName(number, release).
//
//	P4972  GB200 tray BMC    P4975  GB200 HMC
//	P4058  GB300 tray BMC    P4059  GB300 HMC
//	P4110  VR tray BMC       P4109  VR HMC
func Product(number, release string) (Spec, error) {
	platform, hmc, err := productOf(number)
	if err != nil {
		return Spec{}, err
	}
	s := Spec{Version: fmt.Sprintf("%s-%s_%s", platform, number, release)}
	add := func(name, version string) {
		s.Components = append(s.Components, Component{Name: name, Version: version})
	}
	controller := platform + "Nvl-" + release
	if !hmc {
		add("BMC", controller)
		add("ERoT", "01.05."+release+"_n04")
		add("CPLD", "0x00 0x0b 0x04 "+release)
		return s, nil
	}
	add("HMC", controller)
	add("SBIOS", "02.05."+release)
	add("GPU", "97.10."+release)
	add("FPGA", "1.3."+release)
	add("CPLD", "0.3."+release)
	add("ERoT", "01.05."+release+"_n04")
	add("InfoROM_GPU", "G548.0300."+release)
	add("PCIeSwitchConfig", "0118"+release)
	return s, nil
}

// FileName is what the file of a product package is called.
func FileName(number, release string) string {
	platform, _, err := productOf(number)
	if err != nil {
		platform = "UNKNOWN"
	}
	return fmt.Sprintf("nvfw_%s-%s_%s_prod-signed.fwpkg", platform, number, release)
}

func productOf(number string) (platform string, hmc bool, err error) {
	switch number {
	case "P4972", "P4975":
		return "GB200", number == "P4975", nil
	case "P4058", "P4059":
		return "GB300", number == "P4059", nil
	case "P4110", "P4109":
		return "VR", number == "P4109", nil
	}
	return "", false, fmt.Errorf("%w: no product %q", ErrInvalidSpec, number)
}

// Bundle returns a package whose two images are packages themselves: one for the HGX baseboard, one for the tray.
func Bundle(version string, hgx, dgx Spec) Spec {
	return Spec{Version: version, Components: []Component{
		{Name: "HGX", Version: hgx.Version, Nested: &hgx}, {Name: "DGX", Version: dgx.Version, Nested: &dgx},
	}}
}

// DeltaController returns a package for the controller of a Delta shelf: its first descriptor is the controller's
// UUID and its package version is the version the controller will show.
func DeltaController(version string) Spec {
	id, _ := hex.DecodeString(deltaPMC) // a constant of 32 digits
	return Spec{
		Version: version, Device: []Descriptor{{Type: DescriptorUUID, Data: id}},
		Components: []Component{{Name: "PMC", Version: version}},
	}
}
