// SPDX-License-Identifier: Apache-2.0

package bmc

import "slices"

// supermicroQuirks: every upload names its targets, and a BMC image restarts the BMC, which forgets the task.
func supermicroQuirks() quirks {
	return quirks{admit: admitSupermicro, shape: func(_ *Device, _ upload, p *plan) {
		if _, own := p.versions["FW_BMC_0"]; own {
			p.immediate, p.restartsAt, p.forgotten = true, 100, true
		}
	}}
}

func admitSupermicro(_ *Device, u *upload) *answer {
	for _, allowed := range [][]string{
		{hgxURI},
		{inventoryURI + "/HGX_FW_CPU_0", inventoryURI + "/HGX_FW_CPU_1"},
		{inventoryURI + "/FW_BMC_0"},
	} {
		if slices.Equal(slices.Sorted(slices.Values(u.targets)), allowed) {
			return nil
		}
	}
	return refused("The update takes the HGX chassis, both CPUs or FW_BMC_0 as its targets.", "Targets")
}
