// SPDX-License-Identifier: Apache-2.0

package product

import (
	"encoding/json"
	"strings"

	"github.com/rackbus/rackbus/pkg/firmware/flash"
)

// Lenovo's GB300 tray (HG634N_V2, AMI BMC) takes an OemParameters part with every
// package, and its BMC has to be told before an update to keep its settings.
const lenovoBMC = flash.InventoryPath + "BMC"

// lenovoTray are its components. The baseboard's package may come in several
// files; the tray's own BMC goes by two names.
func lenovoTray() []Component {
	return []Component{baseboard().severally(), trayPackage().shownBy("BMC", "FW_BMC_0")}
}

func lenovoItem(t flash.Target) (flash.Item, bool, error) {
	key, file := flash.KeyOf(t.Component), strings.ToLower(t.BaseName())
	if t.Component == "" {
		// A firmware object names the component by its key.
		key = flash.KeyOf(t.Key)
	}
	hpm := strings.HasSuffix(file, ".hpm")
	bmcFile := hpm || strings.HasSuffix(file, ".ima")
	switch {
	case key == flash.KeyHMC, t.Component == flash.BaseboardPath, t.Component == "" && !bmcFile && flash.BaseboardPackage(file):
		return flash.Item{Send: lenovoBaseboard()}, true, nil
	case key == flash.KeyBMC, t.Component == lenovoBMC, t.Component == "" && bmcFile:
		image := "BMC"
		if hpm {
			image = "HPM"
		}
		send := flash.To(lenovoBMC)
		send.OemParameters = json.RawMessage(`{"ImageType":"` + image + `"}`)
		return flash.Item{Send: send, KeepConfiguration: true}, true, nil
	case t.Component == "":
		// Its content may still say that it is for the baseboard.
		return flash.ByContent(lenovoBaseboard()), true, nil
	default:
		return flash.Item{}, false, nil
	}
}

// lenovoBaseboard: the OEM part takes the place of the target.
func lenovoBaseboard() flash.Send {
	return flash.Send{Baseboard: true, OemParameters: json.RawMessage(`{"ImageType":"PLDM","Platform":"HGX"}`)}
}
