// SPDX-License-Identifier: Apache-2.0

// Package sim is a simulated rack: compute trays and power shelves as Redfish servers over real TLS sockets, and switch
// trays with NVUE, SSH, gRPC and a BMC.
//
// A test starts a [Rack], gives its nodes to the code under test, and asks it afterwards what happened:
//
//	rack, err := sim.Start(ctx, sim.Options{Compute: 2, PowerShelves: 1})
//	...
//	defer rack.Close()
//	tray := rack.Device("compute-0001")
//	tray.UpdateKnobs(func(k *bmc.Knobs) { k.TaskStuckAt = 99 })
//	rack.AddFault(faults.Rule{Selector: faults.Any(), Action: faults.Action{Status: &faults.Status{Code: 503}}, Remaining: 3})
//	...
//	uploads := rack.Uploads(tray.ID())
//
// Up to 1,000 devices each have a port of their own on Options.Listen. Above that, each has an address of its own
// in 127.0.0.0/8 and one port serves them all. All devices share one self-signed certificate made at start.
//
// Switches (Options.Switches, Rack.Switch) have an address each, from Options.SwitchAddress on, and one set of ports; see
// package nvswitch.
//
// Options.NodeTypes adds devices of any node type. Package artifacts serves files for downloads.
//
// Package bmc says what an upload changes and when it becomes visible, package firmwarepackage makes the files, and
// package faults has the rules for misbehaviour.
package sim
