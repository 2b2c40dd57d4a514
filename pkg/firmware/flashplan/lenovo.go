// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"encoding/json"
	"strings"
)

// Lenovo's GB300 tray (HG634N_V2, AMI BMC) takes an OemParameters part with every
// package, and its BMC has to be told before an update to keep its settings.
const lenovoBMC = inventoryPath + "BMC"

func lenovo(t Target) (Item, bool, error) {
	key, file := keyOf(t.Component), strings.ToLower(t.BaseName())
	if t.Component == "" {
		// A firmware object names the component by its key.
		key = keyOf(t.Key)
	}
	hpm := strings.HasSuffix(file, ".hpm")
	bmcFile := hpm || strings.HasSuffix(file, ".ima")
	switch {
	case key == keyHMC, t.Component == baseboardPath, t.Component == "" && !bmcFile && BaseboardPackage(file):
		return Item{Send: lenovoBaseboard()}, true, nil
	case key == keyBMC, t.Component == lenovoBMC, t.Component == "" && bmcFile:
		image := "BMC"
		if hpm {
			image = "HPM"
		}
		return Item{
			Send: Send{
				Targets: []string{lenovoBMC}, Scope: []string{lenovoBMC},
				OemParameters: json.RawMessage(`{"ImageType":"` + image + `"}`),
			},
			KeepConfiguration: true,
		}, true, nil
	case t.Component == "":
		// Its content may still say that it is for the baseboard.
		baseboard := lenovoBaseboard()
		return Item{baseboard: &baseboard}, true, nil
	default:
		return Item{}, false, nil
	}
}

// lenovoBaseboard: the OEM part takes the place of the target.
func lenovoBaseboard() Send {
	return Send{Baseboard: true, OemParameters: json.RawMessage(`{"ImageType":"PLDM","Platform":"HGX"}`)}
}
