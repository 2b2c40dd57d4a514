// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nmxc"
	"github.com/rackbus/rackbus/services/switch-agent/internal/nvue"
)

// Status reads the switch's part of the fabric. That it cannot be read is told in
// it.
func (c *Cluster) Status(ctx context.Context) *rackbusv1.FabricSwitchStatus {
	out := &rackbusv1.FabricSwitchStatus{}
	var cluster nvue.Cluster
	var cerr error
	var both sync.WaitGroup
	both.Go(func() { cluster, cerr = c.api().Cluster(ctx) })
	both.Go(func() {
		if app, err := c.api().App(ctx, nvue.AppController); err == nil {
			out.ManagerStatus = app.Status
		}
	})
	both.Wait()
	if cerr != nil {
		out.Error = cerr.Error()
		return out
	}
	out.Enabled = takesPart(cluster)
	return out
}

// StatusWithConfig adds the static configuration of a switch that takes part.
func (c *Cluster) StatusWithConfig(ctx context.Context) *rackbusv1.FabricSwitchStatus {
	out := c.Status(ctx)
	if !out.GetEnabled() {
		return out
	}
	config, err := c.readConfig(ctx)
	if err == nil {
		out.Topology, out.Entries, err = split(config)
	}
	if err != nil {
		out.ConfigError = err.Error()
	}
	return out
}

// readConfig reads the files of the fabric and the subnet manager, and others.
func (c *Cluster) readConfig(ctx context.Context, more ...string) (nmxc.Config, error) {
	ctl, err := c.Controller(ctx)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	files := []string{nmxc.FileFabric, nmxc.FileSubnet}
	for _, f := range more {
		if !slices.Contains(files, f) {
			files = append(files, f)
		}
	}
	return ctl.Files(ctx, files...)
}

// split takes the topology out of a configuration.
func split(config nmxc.Config) (topology string, entries []*rackbusv1.FabricEntry, err error) {
	for _, e := range config.Entries() {
		if e.File == nmxc.FileFabric && e.Key == nmxc.KeyTopology {
			topology = e.Value
			continue
		}
		entries = append(entries, &rackbusv1.FabricEntry{File: e.File, Key: e.Key, Value: e.Value})
	}
	if topology == "" {
		err = fmt.Errorf("%w: %s has no %s", ErrUnreadable, nmxc.FileFabric, nmxc.KeyTopology)
	}
	return topology, entries, err
}

// document is a fabric as its switches report it, the form of a published
// ScaleUpFabricStatus in JSON.
type document struct {
	Topology string           `json:"topology_type"`
	Extras   []documentEntry  `json:"extra_static_configs"`
	Switches []documentSwitch `json:"switches"`
	SDN      string           `json:"sdn_fabric_state,omitempty"`
}

type documentEntry struct {
	File  string `json:"config_file_name"`
	Key   string `json:"key"`
	Value string `json:"value"`
}

type documentSwitch struct {
	NodeID  string `json:"node_id"`
	Enabled bool   `json:"enabled"`
	Manager string `json:"fabric_manager_status"`
	Error   string `json:"error_message"`
}

func (d *document) setConfig(topology string, entries []*rackbusv1.FabricEntry) {
	d.Topology, d.Extras = topology, []documentEntry{}
	for _, e := range entries {
		d.Extras = append(d.Extras, documentEntry{e.GetFile(), e.GetKey(), e.GetValue()})
	}
	slices.SortFunc(d.Extras, func(a, b documentEntry) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Key, b.Key))
	})
}
