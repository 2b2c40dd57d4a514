// SPDX-License-Identifier: Apache-2.0

package flint

import (
	"log/slog"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// FromConfig returns the options as configured.
func FromConfig(c *config.Config, log *slog.Logger) (Options, error) {
	path, err := c.KnownHosts()
	if err != nil {
		return Options{}, err
	}
	keys, err := ssh.OpenHostKeys(ssh.Policy(c.SSH.HostKeyPolicy), path, log)
	if err != nil {
		return Options{}, err
	}
	t := c.InBandTiming()
	return Options{
		HostKeys: keys, Legacy: c.LegacySSH(string(node.FamilyCompute)),
		Timing: Timing{
			Probe: t.ProbeTimeout, ReadyInterval: t.ReadyInterval, ReadyAttempts: t.ReadyAttempts, ReadyLimit: t.ReadyLimit,
			Query: t.QueryTimeout, Upload: t.UploadTimeout, Flash: t.FlashTimeout, FlashPoll: t.FlashPoll,
			VerifyInterval: t.VerifyInterval, VerifyAttempts: t.VerifyAttempts,
			SSH: ssh.Timing{Connect: t.ConnectTimeout, UploadStall: t.UploadStall},
		},
	}, nil
}
