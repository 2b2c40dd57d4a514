// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// objectFlags choose firmware: a stored object, a manifest, or the default of a
// hardware type; and which of it.
type objectFlags struct {
	object, manifest, hardware, firmware string
	components                           []string
	force                                bool
}

const objectHelp = `The firmware is a stored object (--object), the default of a hardware type
(--hardware alone), or a manifest in a file (--manifest). --component takes some
of it: BMC for every type of node among those chosen, or
compute_gb200_nvidia=BMC for one.

`

func addObjectFlags(cmd *cobra.Command, p *program) *objectFlags {
	f := &objectFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.object, "object", "", "stored firmware `OBJECT`")
	flags.StringVar(&f.manifest, "manifest", "", "`FILE` with a manifest, in place of a stored object")
	flags.StringVar(&f.hardware, "hardware", "", "`HARDWARE_TYPE`, whose default object is taken without --object")
	flags.StringVar(&f.firmware, "firmware", "prod", "`KIND` of the files: prod or dev")
	flags.StringArrayVar(&f.components, "component", nil, "only this `[NODE_TYPE=]COMPONENT`; may be repeated")
	register(cmd, "object", p.completeObjects)
	complete(cmd, "firmware", []string{"prod", "dev"}) // and whatever else the manifest has
	requires(cmd, func([]string) error { return f.check() })
	return f
}

func (f *objectFlags) check() error {
	switch {
	case f.object != "" && f.manifest != "":
		return usagef("give --object or --manifest, not both")
	case f.object == "" && f.manifest == "" && f.hardware == "":
		return usagef("which firmware? give --object, --manifest, or --hardware for the default object")
	}
	return nil
}

// config is the manifest to use: that of the file, or of the stored object.
func (f *objectFlags) config(ctx context.Context, r *request) (string, error) {
	if f.manifest != "" {
		raw, err := readInput(r.p.env, f.manifest)
		if err != nil {
			return "", usagef("manifest: %w", err)
		}
		return string(raw), nil
	}
	if f.object != "" {
		resp, err := r.s.racks.GetFirmwareObject(ctx, &rackmanager.GetFirmwareObjectRequest{Id: f.object})
		return resp.GetObject().GetConfigJson(), err
	}
	resp, err := r.s.racks.ListFirmwareObjects(ctx, &rackmanager.ListFirmwareObjectsRequest{HardwareType: f.hardware})
	if err != nil {
		return "", err
	}
	for _, o := range resp.GetObjects() {
		if o.GetIsDefault() {
			return o.GetConfigJson(), nil
		}
	}
	return "", notFoundf("no object is the default of %s", f.hardware)
}

// filters are the component filters for the chosen nodes, by number and by
// descriptor.
func (f *objectFlags) filters(set *rackmanager.NodeSet) (map[int32]*rackmanager.FirmwareObjectComponentFilter,
	[]*rackmanager.NodeDescriptorFirmwareObjectComponentFilter, error,
) {
	if len(f.components) == 0 {
		return nil, nil, nil
	}
	byType := make(map[string][]string)
	for _, c := range f.components {
		id, name, typed := strings.Cut(c, "=")
		if typed {
			if _, known := node.ByID(strings.ToLower(id)); !known {
				return nil, nil, usagef("--component %s: unknown node type; there are %s", c, strings.Join(typeIDs(), ", "))
			}
			byType[strings.ToLower(id)] = append(byType[strings.ToLower(id)], name)
			continue
		}
		var seen []string
		for _, n := range set.GetNodes() {
			if t := typeWord(n.GetType(), n.GetNodeDescriptor()); !slices.Contains(seen, t) {
				seen = append(seen, t)
				byType[t] = append(byType[t], id)
			}
		}
	}
	numbers := make(map[int32]*rackmanager.FirmwareObjectComponentFilter)
	var descriptors []*rackmanager.NodeDescriptorFirmwareObjectComponentFilter
	for _, id := range typeIDs() {
		names := byType[id]
		if len(names) == 0 {
			continue
		}
		filter := &rackmanager.FirmwareObjectComponentFilter{Components: names}
		if t, _ := node.ByID(id); t.DescriptorOnly() {
			descriptors = append(descriptors, &rackmanager.NodeDescriptorFirmwareObjectComponentFilter{
				NodeDescriptor: &rackmanager.NodeDescriptor{Attributes: t.Descriptor()}, ComponentFilter: filter,
			})
		} else {
			numbers[t.Number] = filter
		}
	}
	return numbers, descriptors, nil
}

func newFirmwareCompare(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "compare", Short: "Compare what is installed with a firmware object",
		Long: `Compare the installed firmware of nodes with a firmware object or a manifest. No
file is needed and nothing is changed. Exit code 1 says that something differs.

` + objectHelp + nodesHelp + exitHelp,
		Example: `  rackctl firmware compare --object ACME72_9.1.0 -f rack.csv
  rackctl firmware compare --manifest next.json --rack lab --user admin --password-file bmc.pw`,
	}
	object := addObjectFlags(cmd, p)
	all := cmd.Flags().Bool("all", false, "show components that match too")
	return p.asksAbout(cmd, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		same, err := object.compare(ctx, r, set, *all)
		if err == nil && !same {
			err = failedf("something differs from the firmware object")
		}
		return err
	})
}

// compare shows how nodes differ from the object.
func (f *objectFlags) compare(ctx context.Context, r *request, set *rackmanager.NodeSet, all bool) (same bool, err error) {
	config, err := f.config(ctx, r)
	if err != nil {
		return false, err
	}
	numbers, descriptors, err := f.filters(set)
	if err != nil {
		return false, err
	}
	resp, err := r.p.patient(r.s).racks.CompareFirmwareObject(ctx, &rackmanager.CompareFirmwareObjectRequest{
		ConfigJson: config, FirmwareType: f.firmware, Nodes: set, ComponentFilters: numbers, NodeDescriptorComponentFilters: descriptors,
	})
	if err != nil {
		return false, err
	}
	if err := r.show(resp, compareTable(resp, all || r.out.form == formWide)); err != nil {
		return false, err
	}
	return resp.GetMatchesManifest(), batchFailure(resp.GetResponse())
}

func compareTable(resp *rackmanager.CompareFirmwareObjectResponse, all bool) *table {
	t := &table{columns: columns("NODE", "COMPONENT", "INSTALLED", "PROPOSED", "STATUS", "+TARGET", "WHY")}
	same := 0
	for _, n := range resp.GetNodes() {
		for _, c := range n.GetComponents() {
			if c.GetStatus() == rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MATCHED {
				same++
				if !all {
					continue
				}
			}
			look := bad
			switch c.GetStatus() {
			case rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MATCHED:
				look = good
			case rackmanager.FirmwareComparisonStatus_FIRMWARE_COMPARISON_STATUS_MISMATCHED:
				look = odd
			default:
			}
			t.add(n.GetNodeId(), strings.TrimSpace(c.GetComponent()+" "+c.GetSkuId()), c.GetInstalledVersion(), c.GetProposedVersion(),
				field{enumWord(c.GetStatus(), "FIRMWARE_COMPARISON_STATUS_"), look}, c.GetTarget(), c.GetReason())
		}
	}
	note := fmt.Sprintf("%s: %d components match", cell(resp.GetObjectId()), same)
	if !all && same > 0 && len(t.rows) > 0 {
		note += " and are not shown (--all shows them)"
	}
	t.notes = []string{note}
	return t
}

func newFirmwareApply(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "apply", Short: "Update nodes to a firmware object",
		Long: `Update nodes to a firmware object or a manifest. --dry-run compares what is
installed and starts nothing; rackctl firmware plan freezes what would be done.

` + objectHelp + nodesHelp + waitHelp + exitHelp,
		Example: `  rackctl firmware apply --object ACME72_9.1.0 -f rack.csv --dry-run
  rackctl firmware apply --object ACME72_9.1.0 -f rack.csv --name "November BMCs" --component BMC`,
	}
	object, jobs := addObjectFlags(cmd, p), addJobFlags(cmd, true)
	cmd.Flags().BoolVar(&object.force, "force", false, "send images that are installed already, or older")
	dry := cmd.Flags().Bool("dry-run", false, "compare, start nothing")
	token := tokenFlag(cmd, p.env)
	requires(cmd, func([]string) error {
		if object.manifest != "" && object.hardware == "" && !*dry {
			return usagef("--manifest needs --hardware HARDWARE_TYPE")
		}
		return nil
	})
	return p.asksAbout(cmd, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		if *dry {
			_, err := object.compare(ctx, r, set, false)
			return err
		}
		st, err := object.apply(jobs.context(ctx), r, set, token)
		if err != nil {
			return err
		}
		return jobs.follow(ctx, r, st)
	})
}

// rackOf is the rack of all nodes, which names the parent job; "" for several.
func rackOf(set *rackmanager.NodeSet) string {
	rack := ""
	for i, n := range set.GetNodes() {
		if i > 0 && n.GetRackId() != rack {
			return ""
		}
		rack = n.GetRackId()
	}
	return rack
}

func (f *objectFlags) apply(ctx context.Context, r *request, set *rackmanager.NodeSet, token func() (*string, error)) (started, error) {
	numbers, descriptors, err := f.filters(set)
	if err != nil {
		return started{}, err
	}
	if f.manifest == "" {
		resp, err := r.s.racks.ApplyStoredFirmwareObject(ctx, &rackmanager.ApplyStoredFirmwareObjectRequest{
			RackId: rackOf(set), ObjectId: f.object, FirmwareType: f.firmware, HardwareType: f.hardware, Nodes: set, ForceUpdate: f.force,
			ComponentFilters: numbers, NodeDescriptorComponentFilters: descriptors,
		})
		return startedBatch(resp, resp.GetResponse()), err
	}
	config, err := f.config(ctx, r)
	if err != nil {
		return started{}, err
	}
	secret, err := token()
	if err != nil {
		return started{}, err
	}
	resp, err := r.s.racks.ApplyFirmwareObject(ctx, &rackmanager.ApplyFirmwareObjectRequest{
		RackId: rackOf(set), ConfigJson: config, AccessToken: secret, FirmwareType: f.firmware, HardwareType: f.hardware, Nodes: set,
		ForceUpdate: f.force, ComponentFilters: numbers, NodeDescriptorComponentFilters: descriptors,
	})
	return startedBatch(resp, resp.GetResponse()), err
}
