// SPDX-License-Identifier: Apache-2.0

package product

import "github.com/rackbus/rackbus/pkg/firmware/flash"

// The generations.
var (
	gb200   = Generation{ID: "gb200", Rack: RackGB200, Model: "GB200 NVL"}
	gb300   = Generation{ID: "gb300", Rack: RackGB300, Model: "GB300 NVL"}
	vrnvl72 = Generation{ID: "vrnvl72", Rack: RackVRNVL72, Model: "VR NVL72"}
)

// The vendors.
var (
	nvidia     = Vendor{ID: "nvidia", Brand: "NVIDIA"}
	wiwynn     = Vendor{ID: "wiwynn", Brand: "Wiwynn"}
	lenovo     = Vendor{ID: "lenovo", Brand: "Lenovo"}
	supermicro = Vendor{ID: "supermicro", Brand: "Supermicro"}
	liteon     = Vendor{ID: "liteon", Brand: "LiteOn"}
	delta      = Vendor{ID: "delta", Brand: "Delta"}
)

// table has a row per node type. Numbers are those of the published
// rack_manager.NodeType.
var table = []Product{
	{
		ID: "compute_gb200_nvidia", Number: 1, Family: Compute, Generation: gb200, Vendor: nvidia, InBand: true,
		Redfish:    trayBMC(settledAux()),
		Components: gb200Tray(trayPackage()),
	},
	{
		ID: "compute_gb200_wiwynn", Family: Compute, Generation: gb200, Vendor: wiwynn, InBand: true,
		// The spare bank of its BMC is listed without a version.
		Redfish:    trayBMC(settledAux()).silent("FW_BMC_1"),
		Components: gb200Tray(trayPackage().severally()),
	},
	{
		ID: "compute_gb300_nvidia", Number: 5, Family: Compute, Generation: gb300, Vendor: nvidia,
		Redfish:    trayBMC(probedAux()),
		Components: gb300Tray(),
	},
	{
		ID: "compute_gb300_lenovo", Number: 9, Family: Compute, Generation: gb300, Vendor: lenovo,
		Redfish:    trayBMC(probedAux()).keeping(KeepAMI),
		Flash:      flash.Rule{Item: lenovoItem},
		Components: lenovoTray(),
	},
	{
		ID: "compute_gb300_supermicro", Family: Compute, Generation: gb300, Vendor: supermicro,
		Redfish:    trayBMC(probedAux()),
		Flash:      flash.Rule{Item: supermicroItem, Arrange: supermicroGroups},
		Components: supermicroTray(),
	},
	{
		ID: "compute_vrnvl72_nvidia", Number: 10, Family: Compute, Generation: vrnvl72, Vendor: nvidia,
		Redfish:    trayBMC(probedAux()),
		Components: []Component{baseboard(), trayPackage()},
		OlderRole:  "VRNVL72 Compute Node",
	},
	{
		ID: "switch_gb200_nvidia", Number: 3, Family: Switch, Generation: gb200, Vendor: nvidia,
		Redfish:    switchBMC(),
		Components: switchParts(),
	},
	{
		ID: "switch_gb300_nvidia", Number: 6, Family: Switch, Generation: gb300, Vendor: nvidia,
		Redfish:    switchBMC(),
		Components: switchParts(),
	},
	{
		ID: "switch_vrnvl72_nvidia", Number: 11, Family: Switch, Generation: vrnvl72, Vendor: nvidia,
		Redfish:    switchBMC(),
		Components: switchBundle(), Bundle: true,
	},
	{
		ID: "powershelf_gb200_liteon", Number: 2, Family: PowerShelf, Generation: gb200, Vendor: liteon,
		Redfish:    liteonController(),
		Components: liteonShelf(),
	},
	{
		ID: "powershelf_gb200_delta", Number: 4, Family: PowerShelf, Generation: gb200, Vendor: delta,
		Redfish:    deltaController(),
		Components: deltaShelf(),
	},
	{
		ID: "powershelf_gb300_liteon", Number: 7, Family: PowerShelf, Generation: gb300, Vendor: liteon,
		Redfish:    liteonController(),
		Components: liteonShelf(),
	},
	{
		ID: "powershelf_gb300_delta", Number: 8, Family: PowerShelf, Generation: gb300, Vendor: delta,
		Redfish:    deltaController(),
		Components: deltaShelf(),
	},
}
