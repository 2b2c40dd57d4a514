// SPDX-License-Identifier: Apache-2.0

package bmc

import "net/http"

// Model is a kind of device: a row of the table below.
type Model int

// The models that can be simulated, in the order of the table.
const (
	ComputeGB200NVIDIA Model = iota + 1
	ComputeGB200Wiwynn
	ComputeGB300NVIDIA
	ComputeGB300Lenovo
	ComputeGB300Supermicro
	ComputeVRNVL72NVIDIA
	ShelfGB200LiteOn
	ShelfGB200Delta
	ShelfGB300LiteOn
	ShelfGB300Delta
)

// product is all that makes a device one of its type.
type product struct {
	nodeType string
	// descriptorOnly types have no NodeType value in the contract.
	descriptorOnly bool
	// role, vendor and family are the descriptor's attributes.
	role, vendor, family string
	// manufacturer and model are what the system or shelf chassis says of itself.
	manufacturer, model string
	components          func() []component
	// build adds the tree, with addCompute, addLiteOn or addDelta.
	build func(*Blueprint)
	// shelf is the layout of a power shelf, nil for compute trays.
	shelf  *shelfLayout
	quirks quirks
}

// quirks are where a product leaves the common path. All are optional.
type quirks struct {
	// baseboardFirst lists HGX_Baseboard_0 before System_0.
	baseboardFirst bool
	// bmcEntry is the inventory entry of the tray's BMC; empty is FW_BMC_0.
	bmcEntry string
	// ifMatch is how PATCH treats If-Match unless a knob says otherwise.
	ifMatch IfMatch
	// service adds to the UpdateService document.
	service func(*Device, object)
	// patch takes PATCHes of the UpdateService that it knows and reports whether it did.
	patch func(*Device, object) (answer, bool)
	// admit refuses uploads and may change their targets.
	admit func(*Device, *upload) *answer
	// shape changes what an upload does.
	shape func(*Device, upload, *plan)
	// activated is told of the versions that have become active.
	activated func(*Device, map[string]string)
}

const (
	nvidia  = "NVIDIA"
	liteOn  = "LITE-ON TECHNOLOGY CORP."
	delta   = "DELTA"
	gb200   = "gb200"
	gb300   = "gb300"
	vrnvl72 = "vrnvl72"
)

// products is the table of types. A new type is a row here and, where it is odd, a file of quirks. It is a function
// because the rows name functions that look up rows.
func products() []product {
	return []product{
		ComputeGB200NVIDIA - 1: {
			nodeType: "compute_gb200_nvidia", role: "compute", vendor: "nvidia", family: gb200,
			manufacturer: nvidia, model: "GB200 NVL", components: gb200Components, build: (*Blueprint).addCompute,
		},
		ComputeGB200Wiwynn - 1: {
			nodeType: "compute_gb200_wiwynn", descriptorOnly: true, role: "compute", vendor: "wiwynn", family: gb200,
			manufacturer: "WIWYNN", model: "GB200 NVL", components: wiwynnComponents, build: (*Blueprint).addCompute,
		},
		ComputeGB300NVIDIA - 1: {
			nodeType: "compute_gb300_nvidia", role: "compute", vendor: "nvidia", family: gb300,
			manufacturer: nvidia, model: "GB300 NVL", components: gb300Components, build: (*Blueprint).addCompute,
		},
		ComputeGB300Lenovo - 1: {
			nodeType: "compute_gb300_lenovo", role: "compute", vendor: "lenovo", family: gb300,
			manufacturer: "Lenovo", model: "HG634N_V2", components: lenovoComponents, build: (*Blueprint).addCompute,
			quirks: lenovoQuirks(),
		},
		ComputeGB300Supermicro - 1: {
			nodeType: "compute_gb300_supermicro", descriptorOnly: true, role: "compute", vendor: "supermicro", family: gb300,
			manufacturer: "Supermicro", model: "GB300 NVL", components: gb300Components, build: (*Blueprint).addCompute,
			quirks: supermicroQuirks(),
		},
		ComputeVRNVL72NVIDIA - 1: {
			nodeType: "compute_vrnvl72_nvidia", role: "compute", vendor: "nvidia", family: vrnvl72,
			manufacturer: nvidia, model: "VR NVL72", components: vrComponents, build: (*Blueprint).addCompute,
		},
		ShelfGB200LiteOn - 1: {
			nodeType: "powershelf_gb200_liteon", role: "power_shelf", vendor: "liteon", family: gb200,
			manufacturer: liteOn, model: "PF-1333-7R", components: liteOnComponents, build: (*Blueprint).addLiteOn,
			shelf: liteOnLayout(),
		},
		ShelfGB200Delta - 1: {
			nodeType: "powershelf_gb200_delta", role: "power_shelf", vendor: "delta", family: gb200,
			manufacturer: delta, model: "ECD17020", components: deltaComponents, build: (*Blueprint).addDelta,
			shelf: deltaLayout(),
		},
		ShelfGB300LiteOn - 1: {
			nodeType: "powershelf_gb300_liteon", role: "power_shelf", vendor: "liteon", family: gb300,
			manufacturer: liteOn, model: "PF-1333-7R", components: liteOnComponents, build: (*Blueprint).addLiteOn,
			shelf: liteOnLayout(),
		},
		ShelfGB300Delta - 1: {
			nodeType: "powershelf_gb300_delta", role: "power_shelf", vendor: "delta", family: gb300,
			manufacturer: delta, model: "ECD17030", components: deltaComponents, build: (*Blueprint).addDelta,
			shelf: deltaLayout(),
		},
	}
}

// refused builds the answer of a quirk that turns an upload away.
func refused(text string, args ...string) *answer {
	a := refusal(http.StatusBadRequest, "ActionParameterValueError", text, args...)
	return &a
}
