// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackbus/rackbus/proto/rackmanager"
	"github.com/rackbus/rackbus/proto/rackmanagerv2"
)

func newReboot(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reboot", Short: "Take a whole rack down and up again (cold reboot)",
		Long: `Take a whole rack through shutdown, power-off of its shelves, discharge and
power-on, as one job that keeps all other jobs off its nodes. The nodes are all of
one rack, with at least one power shelf, one compute tray and one switch.

` + nodesHelp + waitHelp + exitHelp,
		Example: `  rackctl reboot -f rack.csv --rack lab
  rackctl reboot --rack lab --user admin --password-file bmc.pw --host-user admin --host-password-file nvos.pw`,
	}
	domain := addDomain(cmd)
	waits := make(map[string]*time.Duration)
	for name, what := range map[string]string{
		"shutdown-wait":  "wait after the shutdown of the compute trays",
		"shutdown-limit": "limit for the compute trays to be off (default 5m)",
		"discharge-wait": "wait after the shelves are off (default 3m)", "discharge-limit": "limit for the BMCs to be gone (default 10m)",
		"bmc-wait": "wait after the shelves are on (default 2m)", "bmc-limit": "limit for the BMCs to be back (default 10m)",
		"boot-wait": "wait for the compute trays to boot (default 5m)", "poll": "time between two looks (default 15s)",
	} {
		waits[name] = cmd.Flags().Duration(name, 0, what)
		notNegative(cmd, name, waits[name])
	}
	yes := addYes(cmd)
	seconds := func(name string) *uint32 {
		if *waits[name] <= 0 {
			return nil
		}
		n := uint32(max((*waits[name] + time.Second - 1).Seconds(), 1))
		return &n
	}
	return p.starts(cmd, false, func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
		if err := p.confirm(*yes, "Take %d nodes of rack %s down and up again", len(set.GetNodes()), set.GetNodes()[0].GetRackId()); err != nil {
			return started{}, err
		}
		resp, err := r.s.racks.ExecuteColdReboot(ctx, &rackmanager.ExecuteColdRebootRequest{
			Nodes: set, Domain: domain(),
			PrestageShutdownFloorSeconds: seconds("shutdown-wait"), PrestageShutdownPollMaxSeconds: seconds("shutdown-limit"),
			DischargeFloorSeconds: seconds("discharge-wait"), DischargePollMaxSeconds: seconds("discharge-limit"),
			BmcUpFloorSeconds: seconds("bmc-wait"), BmcUpPollMaxSeconds: seconds("bmc-limit"),
			ComputeBootWaitSeconds: seconds("boot-wait"), PollIntervalSeconds: seconds("poll"),
		})
		return startedBatch(resp, resp.GetResponse()), err
	})
}

// addDomain is the flag for the TLS material towards switches.
func addDomain(cmd *cobra.Command) func() *string {
	domain := cmd.Flags().String("domain", "", "`DOMAIN` of the TLS material towards the switches (default that of the server)")
	return func() *string {
		if *domain == "" {
			return nil
		}
		return domain
	}
}

func newValidate(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate", Short: "Run the system validation on nodes",
		Long: "Run the system validation (NVSSVT) that the server is configured with on nodes.\n\n" + nodesHelp + waitHelp + exitHelp,
	}
	override := cmd.Flags().String("config-override", "", "passed to the validator as it is")
	return p.starts(cmd, true, func(ctx context.Context, r *request, set *rackmanager.NodeSet) (started, error) {
		resp, err := r.s.v2.StartSystemValidation(ctx, &rackmanagerv2.StartSystemValidationRequest{Nodes: set, ConfigOverride: *override})
		return startedBatch(resp, resp.GetResponse()), err
	})
}
