// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

func newFabric(p *program) *cobra.Command {
	return group("fabric", "The scale-up fabric of switches",
		newFabricStatus(p), newFabricConfigure(p), newFabricServices(p), newFabricState(p), newFabricEnable(p, true), newFabricEnable(p, false), newFabricTelemetry(p))
}

// switchesCall is a command about described switches that shows what they say at once.
func switchesCall(p *program, use, short, long string, call func(context.Context, *request, *rackmanager.NodeSet) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long + "\n\n" + nodesHelp + exitHelp}
	return p.asksAbout(cmd, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		r.patient()
		return call(ctx, r, set)
	}, node.FamilySwitch)
}

func newFabricStatus(p *program) *cobra.Command {
	var domain func() *string
	cmd := switchesCall(p, "status", "Show the fabric as its switches report it",
		"Show topology, static configuration and fabric manager state of a fabric, from all of\nits switches.",
		func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
			resp, err := r.s.racks.GetScaleUpFabricStatus(ctx, &rackmanager.GetScaleUpFabricStatusRequest{Nodes: set, Domain: domain()})
			if err != nil {
				return err
			}
			f := resp.GetFabricStatus()
			t := &table{columns: columns("SWITCH", "ENABLED", "FABRIC MANAGER", "WHY")}
			for _, sw := range f.GetSwitches() {
				t.add(sw.GetNodeId(), okWord(sw.GetEnabled()), sw.GetFabricManagerStatus(), sw.GetErrorMessage())
			}
			if f != nil {
				t.notes = []string{"Topology: " + cell(f.GetTopologyType())}
				for _, c := range f.GetExtraStaticConfigs() {
					t.notes = append(t.notes, cell(c.GetConfigFileName())+": "+cell(c.GetKey())+" = "+cell(c.GetValue()))
				}
			}
			if err := r.show(resp, t); err != nil {
				return err
			}
			if !succeeded(resp.GetStatus()) {
				return failedf("%s", cell(resp.GetErrorMessage()))
			}
			return nil
		})
	domain = addDomain(cmd)
	return cmd
}

func newFabricConfigure(p *program) *cobra.Command {
	var domain func() *string
	var primary, topology string
	var extras []string
	cmd := switchJob(p, "configure", "Configure topology and static settings of a fabric",
		`Configure topology and static settings of a whole fabric as one job. --set changes
an entry of a file of the fabric manager, FILE:KEY=VALUE.`, func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
			req := &rackmanagerv2.ConfigureScaleUpFabricManagerRequest{
				Nodes: set, Domain: domain(), Config: &rackmanagerv2.ScaleUpFabricConfig{TopologyType: topology},
			}
			if primary != "" {
				req.PrimarySwitchNodeId = &primary
			}
			var err error
			if req.Config.ExtraStaticConfigs, err = staticConfigs(extras); err != nil {
				return started{}, err
			}
			resp, err := r.s.v2.ConfigureScaleUpFabricManager(ctx, req)
			return started{answer: resp, jobID: resp.GetJobId()}, err
		}, "")
	flags := cmd.Flags()
	flags.StringVar(&topology, "topology", "", "`TOPOLOGY` of the fabric (required)")
	flags.StringVar(&primary, "primary", "", "`NODE` that runs the fabric manager (default the lowest in the rack)")
	flags.StringArrayVar(&extras, "set", nil, "`FILE:KEY=VALUE` of the fabric manager's configuration; may be repeated")
	domain = addDomain(cmd)
	requires(cmd, func([]string) error {
		if topology == "" {
			return usagef("--topology is missing, for example gb200_nvl72r1_c2g4_topology")
		}
		_, err := staticConfigs(extras)
		return err
	})
	return cmd
}

// staticConfigs are the settings of --set.
func staticConfigs(texts []string) (out []*rackmanager.ScaleUpFabricStaticConfig, err error) {
	for _, text := range texts {
		left, value, ok := strings.Cut(text, "=")
		file, key, named := strings.Cut(left, ":")
		if !ok || !named || file == "" || key == "" {
			return nil, usagef("--set %q is not FILE:KEY=VALUE", text)
		}
		out = append(out, &rackmanager.ScaleUpFabricStaticConfig{ConfigFileName: file, Key: key, Value: value})
	}
	return out, nil
}

func newFabricServices(p *program) *cobra.Command {
	return switchesCall(p, "services", "Show the fabric services of switches", "Show the status of the fabric services of switches; -o json has all of it.",
		func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
			resp, err := r.s.racks.BatchGetScaleUpFabricServiceStatus(ctx, &rackmanager.BatchGetScaleUpFabricServiceStatusRequest{Nodes: set})
			if err != nil {
				return err
			}
			t := &table{columns: columns("SWITCH", "STATUS", "WHY")}
			for _, id := range slices.Sorted(maps.Keys(resp.GetServiceStatuses())) {
				e := resp.GetServiceStatuses()[id]
				t.add(id, compact(e.GetStatusJson()), e.GetErrorMessage())
			}
			if err := r.show(resp, t); err != nil {
				return err
			}
			if !succeeded(resp.GetStatus()) {
				return failedf("%d of %d switches could not be read", resp.GetStats().GetFailedNodes(), resp.GetStats().GetTotalNodes())
			}
			return nil
		})
}

// compact is a JSON document in one line.
func compact(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return text
	}
	return string(raw)
}

func newFabricState(p *program) *cobra.Command {
	return switchesCall(p, "state", "Show the fabric manager state of switches", "Show the state of the fabric manager, switch by switch.",
		func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
			states := make(map[string]json.RawMessage)
			t := &table{columns: columns("SWITCH", "STATE", "WHY")}
			var failure error
			for _, n := range set.GetNodes() {
				resp, err := r.s.racks.GetScaleUpFabricState(ctx, &rackmanager.GetScaleUpFabricStateRequest{Node: n})
				if err != nil {
					return err
				}
				t.add(n.GetNodeId(), compact(resp.GetStateJson()), resp.GetErrorMessage())
				if json.Valid([]byte(resp.GetStateJson())) {
					states[n.GetNodeId()] = json.RawMessage(resp.GetStateJson())
				}
				if !succeeded(resp.GetStatus()) {
					failure = failedf("%s: %s", cell(n.GetNodeId()), cell(resp.GetErrorMessage()))
				}
			}
			if err := r.show(states, t); err != nil {
				return err
			}
			return failure
		})
}

func newFabricEnable(p *program, on bool) *cobra.Command {
	use, short := "enable", "Turn the fabric manager of switches on"
	if !on {
		use, short = "disable", "Turn the fabric manager of switches off"
	}
	return switchesCall(p, use, short, short+", and wait until every switch has answered.",
		func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
			resp, err := r.s.racks.BatchSetScaleUpFabricState(ctx, &rackmanager.BatchSetScaleUpFabricStateRequest{Nodes: set, Enabled: on})
			if err != nil {
				return err
			}
			t := &table{columns: columns("SWITCH", "RESULT", "WHY")}
			for _, r := range resp.GetResponse().GetNodeResults() {
				t.add(r.GetNodeId(), resultField(r.GetStatus()), r.GetErrorMessage())
			}
			if err := r.show(resp, t); err != nil {
				return err
			}
			return batchFailure(resp.GetResponse())
		})
}

func newFabricTelemetry(p *program) *cobra.Command {
	verb := func(use string, on bool) *cobra.Command {
		return switchesCall(p, use, "Turn the telemetry interface "+use, "Turn the fabric telemetry interface of switches "+use+", one after the other.",
			func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
				return r.each(ctx, use, refsOfSet(set), func(i int) (string, error) {
					resp, err := r.s.racks.SetScaleUpFabricTelemetryInterfaceState(ctx,
						&rackmanager.SetScaleUpFabricTelemetryInterfaceStateRequest{Node: set.GetNodes()[i], Enable: on})
					if err != nil || succeeded(resp.GetStatus()) {
						return "", err
					}
					return cmp.Or(resp.GetErrorMessage(), "no reason was given"), nil
				})
			})
	}
	return group("telemetry", "The fabric telemetry interface of switches", verb("on", true), verb("off", false))
}
