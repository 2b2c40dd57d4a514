// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
)

func newDiag(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "diag [RACK/NODE...]", Aliases: []string{"diagnose"}, Short: "Collect what an engineer asks for after a failure",
		Long: `Collect power and health, firmware inventory, tasks, logs, sensors and states of
registered nodes, and recognise known patterns of failure. With --job, the history
of that job goes with it; without nodes, its node is examined, or those of its
children that did not complete. --download fetches the bundles when the job has
ended, into a folder.

` + waitHelp + exitHelp,
		Example: `  rackctl diag lab/tray-07 --wait
  rackctl diag --job 72f5b1f8-2fe2-44b9-af0d-891b00000000 --download evidence`,
		ValidArgsFunction: p.completeNodes,
	}
	rack := cmd.Flags().String("rack", "", "`RACK` of the nodes")
	about := cmd.Flags().String("job", "", "`JOB_ID` that is looked into")
	dir := cmd.Flags().String("download", "", "wait, and put the bundles into this `FOLDER`")
	jobs := addJobFlags(cmd, false)
	register(cmd, "rack", p.completeRacks)
	register(cmd, "job", p.completeJobs)
	requires(cmd, func(args []string) error {
		if len(args) == 0 && *about == "" {
			return usagef("name nodes, or a job with --job")
		}
		return nil
	})
	return p.asks(cmd, func(ctx context.Context, r *request) error {
		refs, err := references(*rack, r.args)
		if err != nil {
			return err
		}
		req := &rackbusv1.StartNodeDiagnosticsRequest{AboutJobId: *about}
		for _, ref := range refs {
			req.Nodes = append(req.Nodes, &rackbusv1.DiagnosedNode{RackId: ref.RackID, NodeId: ref.NodeID})
		}
		if *dir != "" {
			jobs.wait, jobs.waitGiven = true, func() bool { return true }
		}
		resp, err := r.s.jobs.StartNodeDiagnostics(jobs.context(ctx), req)
		if err != nil {
			return err
		}
		err = jobs.follow(ctx, r, started{answer: resp, jobID: resp.GetJobId(), failure: refusedNodes(resp.GetRefusedNodes())})
		if *dir == "" || resp.GetJobId() == "" || isInterrupted(err) {
			return err
		}
		return errors.Join(err, p.downloadBundles(ctx, r.s, resp.GetJobId(), *dir))
	})
}

func isInterrupted(err error) bool {
	var judged *exitError
	return errors.As(err, &judged) && judged.code == ExitInterrupted
}

func refusedNodes(nodes []*rackbusv1.RefusedNode) error {
	if len(nodes) == 0 {
		return nil
	}
	text := "1 node was refused"
	if len(nodes) > 1 {
		text = fmt.Sprintf("%d nodes were refused", len(nodes))
	}
	for _, n := range nodes {
		text += fmt.Sprintf("\n  %s: %s", cell(place(n.GetRackId(), n.GetNodeId())), cell(n.GetMessage()))
	}
	return failedf("%s", text)
}

// downloadBundles fetches the bundle of every node, also of runs that failed.
func (p *program) downloadBundles(ctx context.Context, s *server, id, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return failed(err)
	}
	resp, err := s.job(ctx, id)
	if err != nil {
		return err
	}
	var errs []error
	for _, child := range resp.GetChildren() {
		e, err := s.evidence(ctx, child.GetJobId())
		if err == nil {
			name := fmt.Sprintf("%s-%s-%s", child.GetRackId(), child.GetNodeId(), filepath.Base(e.GetFilename()))
			f := evidenceFlags{path: filepath.Join(dir, fileName(name))}
			err = f.download(ctx, p, s, e)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
