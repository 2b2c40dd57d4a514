// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// request is one run of a command against a server.
type request struct {
	p *program
	s *server
	// out is the form in which the outcome is wanted.
	out  *output
	args []string
}

// show shows the outcome: v to programs, the table to people.
func (r *request) show(v any, t *table) error { return r.out.show(r.p.env, v, t) }

// asks gives a command its body: what it asks the server, and shows in the form of -o. What can be wrong with the
// command line alone belongs into PreRunE, which is looked at before the configuration.
func (p *program) asks(cmd *cobra.Command, run func(context.Context, *request) error) *cobra.Command {
	return p.asksIn(cmd, answers(cmd), run)
}

// asksIn is asks for a command with forms of its own.
func (p *program) asksIn(cmd *cobra.Command, out *output, run func(context.Context, *request) error) *cobra.Command {
	return p.tells(cmd, out, func(args []string) error {
		return p.with(cmd.Context(), func(ctx context.Context, s *server) error {
			return run(ctx, &request{p, s, out, args})
		})
	})
}

// tells gives a command its body that needs no server.
func (p *program) tells(cmd *cobra.Command, out *output, run func(args []string) error) *cobra.Command {
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if err := out.settle(p); err != nil {
			return err
		}
		return run(args)
	}
	return cmd
}

// patient lets the calls of a request take as long as work on a device does.
func (r *request) patient() *server { return r.p.patient(r.s) }

// asksAbout is asks for a call that takes nodes with addresses and logins, of some families or of all.
func (p *program) asksAbout(cmd *cobra.Command, run func(context.Context, *request, *rackmanager.NodeSet) error,
	families ...node.Family,
) *cobra.Command {
	nodes := addNodeFlags(cmd, p)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		set, err := nodes.nodes(ctx, p, r.s, cmd, r.args, families...)
		if err != nil {
			return err
		}
		return run(ctx, r, set)
	})
}

// starts is asksAbout for a call that starts a job, which is then followed as the flags say.
func (p *program) starts(cmd *cobra.Command, batch bool, run func(context.Context, *request, *rackmanager.NodeSet) (started, error),
	families ...node.Family,
) *cobra.Command {
	jobs := addJobFlags(cmd, batch)
	return p.asksAbout(cmd, func(ctx context.Context, r *request, set *rackmanager.NodeSet) error {
		st, err := run(jobs.context(ctx), r, set)
		if err != nil {
			return err
		}
		return jobs.follow(ctx, r, st)
	}, families...)
}

// asksRegistered is asks for a call about registered nodes.
func (p *program) asksRegistered(cmd *cobra.Command, run func(context.Context, *request, []node.Ref) error) *cobra.Command {
	var f registeredFlags
	f.add(p, cmd)
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		refs, err := f.refs(ctx, r.s, r.args)
		if err != nil {
			return err
		}
		return run(ctx, r, refs)
	})
}

// registers is asks for a call that changes the inventory by a file; --dry-run compares, and asks nobody for passwords.
func (p *program) registers(cmd *cobra.Command, compare, change func(context.Context, *request, *rackmanager.NodeSet) error) *cobra.Command {
	nodes := addNodeFlags(cmd, p)
	cmd.Flags().BoolVar(&nodes.unasked, "dry-run", false, "show what would become of the nodes, change nothing")
	requires(cmd, func([]string) error {
		if nodes.file == "" {
			return usagef("give the inventory with -f FILE")
		}
		return nil
	})
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		set, err := nodes.nodes(ctx, p, r.s, cmd, r.args)
		if err != nil {
			return err
		}
		if nodes.unasked {
			return compare(ctx, r, set)
		}
		return change(ctx, r, set)
	})
}

// requires adds what has to hold of the command line before anything is begun.
func requires(cmd *cobra.Command, check func(args []string) error) {
	former := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if former != nil {
			if err := former(cmd, args); err != nil {
				return err
			}
		}
		return check(args)
	}
}
