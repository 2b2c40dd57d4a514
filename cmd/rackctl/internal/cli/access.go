// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rackbus/rackbus/pkg/telemetry"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

func newWhoAmI(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "whoami", Short: "Show how the server sees you, and what you may do", Args: cobra.NoArgs,
		Long: `Show the identity that the server takes from your certificate, and your role:
viewer may read, operator may change hardware and jobs, admin may do everything.

` + exitHelp,
	}
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		resp, err := r.s.access.WhoAmI(ctx, &rackbusv1.WhoAmIRequest{})
		if err != nil {
			return err
		}
		t := &table{columns: columns("IDENTITY", "ROLE", "SERVER")}
		t.add(resp.GetIdentity(), enumWord(resp.GetRole(), "ROLE_"), r.s.target.Address)
		return r.show(resp, t)
	})
}

func newAudit(p *program) *cobra.Command {
	return group("audit", "See who has changed what", newAuditList(p))
}

func newAuditList(p *program) *cobra.Command {
	var rack, nodeID string
	var limit int
	req := &rackbusv1.ListAuditRecordsRequest{}
	cmd := &cobra.Command{
		Use: "list", Short: "List the calls that have changed something, newest first", Args: cobra.NoArgs,
		Long: "List the calls that have changed something, or tried to, newest first. That needs\nthe role admin.\n\n" + exitHelp,
	}
	flags := cmd.Flags()
	flags.StringVar(&rack, "rack", "", "only calls about `RACK`")
	flags.StringVar(&nodeID, "node", "", "only calls about `[RACK/]NODE`")
	flags.StringVar(&req.JobId, "job", "", "only calls about `JOB_ID`")
	flags.StringVar(&req.Identity, "identity", "", "only calls of this `IDENTITY`")
	flags.StringVar(&req.Rpc, "rpc", "", "only this `METHOD`, for example SetPowerState")
	since := addSince(cmd, "only calls since so long `AGO`, for example 24h or 7d")
	flags.IntVar(&limit, "limit", 100, "at most so many `CALLS`, 0 for all")
	register(cmd, "rack", p.completeRacks)
	register(cmd, "node", p.completeNodes)
	register(cmd, "job", p.completeJobs)
	requires(cmd, func([]string) error { return checkLimit(limit) })
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		req.RackId, req.NodeId = rack, nodeID
		if r, n, both := strings.Cut(nodeID, "/"); both {
			req.RackId, req.NodeId = r, n
		}
		if from := since.before(p.env.now()); from != nil {
			req.Since = timestamppb.New(*from)
		}
		all := &rackbusv1.ListAuditRecordsResponse{}
		more := true
		for more && (limit == 0 || len(all.GetRecords()) < limit) {
			req.PageSize = maxJobPage
			if limit > 0 {
				req.PageSize = uint32(min(limit-len(all.GetRecords()), maxJobPage))
			}
			resp, err := r.s.access.ListAuditRecords(ctx, req)
			if err != nil {
				return err
			}
			all.Records = append(all.Records, resp.GetRecords()...)
			req.PageToken = resp.GetNextPageToken()
			more = req.PageToken != ""
		}
		t := auditTable(all.GetRecords())
		if more {
			t.notes = append(t.notes, moreNote(limit))
		}
		return r.show(all, t)
	})
}

func auditTable(records []*rackbusv1.AuditRecord) *table {
	t := &table{
		columns: columns("TIME", "~WHO", "ROLE", "+PEER", "CALL", "~NODES", "+JOB", "OUTCOME", "+TOOK", "MESSAGE"), empty: "No call matches.",
	}
	for _, r := range records {
		outcome := field{r.GetOutcome(), good}
		if r.GetOutcome() != "OK" {
			outcome.style = bad
		}
		nodes := ""
		for i, n := range r.GetNodes() {
			if i == 2 {
				break
			}
			nodes += " " + place(n.GetRackId(), n.GetNodeId())
		}
		if rest := int(r.GetNodeCount()) - min(len(r.GetNodes()), 2); rest > 0 {
			nodes += fmt.Sprintf(" and %d more", rest)
		}
		t.add(at(r.GetAt()), r.GetIdentity(), enumWord(r.GetRole(), "ROLE_"), r.GetPeer(), path.Base(r.GetRpc()), strings.TrimSpace(nodes),
			r.GetJobId(), outcome, r.GetDuration().AsDuration().Round(time.Millisecond).String(), r.GetMessage())
	}
	return t
}

func newVersion(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "Show the versions of rackctl and of the server", Args: cobra.NoArgs,
		Long: "Show the version of rackctl, and that of the server unless --client is given.\n\n" + exitHelp,
	}
	client := cmd.Flags().Bool("client", false, "that of rackctl only")
	versions := map[string]string{"rackctl": telemetry.Version()}
	t := &table{columns: columns("PROGRAM", "VERSION")}
	t.add("rackctl", telemetry.Version())
	out := answers(cmd)
	both := p.asksIn(cmd, out, func(ctx context.Context, r *request) error {
		resp, err := r.s.racks.GetVersion(ctx, &rackmanager.GetVersionRequest{})
		if err != nil {
			return err
		}
		versions["server"] = resp.GetVersion()
		t.add("server", resp.GetVersion())
		return r.show(versions, t)
	})
	ask := both.RunE
	return p.tells(cmd, out, func(args []string) error {
		if !*client {
			return ask(cmd, args)
		}
		return out.show(p.env, versions, t)
	})
}
