// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/sim"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
	"github.com/rackbus/rackbus/sim/reqlog"
)

// TrayComponent is the inventory name of what tray packages bring a version for.
const TrayComponent = "FW_BMC_0"

// ShelfComponent is the inventory name of a shelf's controller.
const ShelfComponent = "pmc_5c3f81d0"

// NodeSet returns devices of a rack as a request names them, all of them without ids.
func (c *Cluster) NodeSet(rack *sim.Rack, ids ...string) *rackmanager.NodeSet {
	c.t.Helper()
	set := rack.NodeSet()
	if len(ids) > 0 {
		set.Nodes = slices.DeleteFunc(set.Nodes, func(n sim.Node) bool { return !slices.Contains(ids, n.NodeID) })
		require.Len(c.t, set.Nodes, len(ids))
	}
	text, err := json.Marshal(set)
	require.NoError(c.t, err)
	out := &rackmanager.NodeSet{}
	require.NoError(c.t, protojson.Unmarshal(text, out))
	return out
}

// WriteFirmware puts an image where API and agents look for it.
func (c *Cluster) WriteFirmware(name string, content []byte) {
	c.t.Helper()
	require.NoError(c.t, os.WriteFile(filepath.Join(c.FirmwareDir, name), content, 0o644))
}

// WriteTrayPackage writes a package that brings TrayComponent to a version.
func (c *Cluster) WriteTrayPackage(name, version string) {
	c.t.Helper()
	content, err := firmwarepackage.Build(firmwarepackage.Spec{
		Version: "tray-" + version, Components: []firmwarepackage.Component{{Name: TrayComponent, Version: version}},
	})
	require.NoError(c.t, err)
	c.WriteFirmware(name, content)
}

// Writes returns what all racks have seen that could change a device.
func (c *Cluster) Writes() []reqlog.Entry {
	var out []reqlog.Entry
	for _, rack := range c.Racks {
		entries := rack.Requests("", reqlog.Filter{Writes: true})
		for i := range entries {
			entries[i].Device = rack.ID() + "/" + entries[i].Device
		}
		out = append(out, entries...)
	}
	return out
}
