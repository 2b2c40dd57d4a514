// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func newRacks(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "racks", Aliases: []string{"rack"}, Short: "List the racks with their nodes and running jobs",
		Long: `List the racks that nodes are registered in, how many nodes of each family they
have, and how many of their jobs are running or queued (at most 500 are counted).

` + exitHelp,
		Args: cobra.NoArgs,
	}
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		racks, err := r.s.racks.ListRacks(ctx, &rackmanager.ListRacksRequest{})
		if err != nil {
			return err
		}
		if r.out.data() {
			return r.out.write(p.env.Stdout, racks)
		}
		nodes, err := r.s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
		if err != nil {
			return err
		}
		jobs, err := r.s.jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{PageSize: maxJobPage, Filter: &rackbusv1.JobFilter{States: activeStates}})
		if err != nil && !unimplemented(err) {
			return err
		}
		return r.show(racks, rackTable(racks.GetRackIds(), nodes.GetNodes(), jobs.GetJobs()))
	})
}

// maxJobPage is the most that ListJobs returns at once.
const maxJobPage = 500

// activeStates are those of jobs that have not ended.
var activeStates = []rackbusv1.JobState{
	rackbusv1.JobState_JOB_STATE_QUEUED, rackbusv1.JobState_JOB_STATE_RUNNING, rackbusv1.JobState_JOB_STATE_CANCELLATION_REQUESTED,
}

func rackTable(ids []string, nodes []*rackmanager.NodeInventoryInfo, jobs []*rackbusv1.Job) *table {
	t := &table{columns: columns("RACK", "PRODUCT", ">COMPUTE", ">SWITCHES", ">SHELVES", ">RUNNING", ">QUEUED", "+TYPES"), empty: "No rack is registered."}
	for _, id := range slices.Sorted(slices.Values(ids)) {
		families, types := make(map[string]int), make(map[string]bool)
		product := ""
		for _, n := range nodes {
			if n.GetRackId() != id {
				continue
			}
			word := typeWord(n.GetType(), n.GetNodeDescriptor())
			family, rest, _ := strings.Cut(word, "_")
			families[family]++
			types[word] = true
			if product == "" {
				generation, _, _ := strings.Cut(rest, "_")
				product = strings.ToUpper(generation)
			}
		}
		running, queued := 0, 0
		for _, j := range jobs {
			switch {
			case j.GetRackId() != id || j.GetKind() == rackbusv1.JobKind_JOB_KIND_PARENT:
			case j.GetState() == rackbusv1.JobState_JOB_STATE_QUEUED:
				queued++
			default:
				running++
			}
		}
		t.add(id, product, families["compute"], families["switch"], families["powershelf"],
			counted(running, busy), counted(queued, odd), strings.Join(slices.Sorted(maps.Keys(types)), ", "))
	}
	return t
}

// counted is a number that is shown in a style unless it is 0.
func counted(n int, s style) field {
	if n == 0 {
		return field{"0", dim}
	}
	return field{itoa(n), s}
}
