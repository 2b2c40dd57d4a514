// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// completionJobs is how many jobs a shell is offered.
const completionJobs = 50

// candidates asks the server for completions. A shell that gets none shows none:
// nobody wants reasons in the middle of a command line.
func (p *program) candidates(cmd *cobra.Command, typed string, ask func(context.Context, *server) ([]string, error)) ([]cobra.Completion, cobra.ShellCompDirective) {
	s, err := p.dial()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer s.close()
	s.limit = p.env.Timing.withDefaults().Completion
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	all, err := ask(ctx, s)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []cobra.Completion
	for _, c := range all {
		if strings.HasPrefix(c, typed) {
			out = append(out, c)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func (p *program) completeContexts(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.contextNames()
}

func (p *program) contextNames() ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := p.loadConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return config.names(), cobra.ShellCompDirectiveNoFileComp
}

// once offers what complete does for the first argument only.
func once(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

func (p *program) completeRacks(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.candidates(cmd, typed, func(ctx context.Context, s *server) ([]string, error) {
		resp, err := s.racks.ListRacks(ctx, &rackmanager.ListRacksRequest{})
		return resp.GetRackIds(), err
	})
}

// completeNodes offers NODE after --rack and RACK/NODE without.
func (p *program) completeNodes(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	rack := ""
	if f := cmd.Flags().Lookup("rack"); f != nil {
		rack = f.Value.String()
	}
	return p.candidates(cmd, typed, func(ctx context.Context, s *server) ([]string, error) {
		resp, err := s.racks.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
		var out []string
		for _, n := range sortedNodes(resp.GetNodes()) {
			switch {
			case rack == "":
				out = append(out, n.GetRackId()+"/"+n.GetNodeId())
			case rack == n.GetRackId():
				out = append(out, n.GetNodeId())
			}
		}
		return out, err
	})
}

func (p *program) completeJobs(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.candidates(cmd, typed, func(ctx context.Context, s *server) ([]string, error) {
		resp, err := s.jobs.ListJobs(ctx, &rackbusv1.ListJobsRequest{PageSize: completionJobs, Filter: &rackbusv1.JobFilter{TopLevelOnly: true}})
		var out []string
		for _, j := range resp.GetJobs() {
			what := fmt.Sprintf("%s %s %s", cell(j.GetType()), stateWord(j.GetState()), j.GetName())
			out = append(out, cobra.CompletionWithDesc(j.GetJobId(), strings.TrimSpace(what)))
		}
		return out, err
	})
}
