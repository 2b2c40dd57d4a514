// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"strings"
	"time"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/ssh"
)

// bootCommand tells one boot of an operating system from another (Linux, random(4)).
const bootCommand = "cat /proc/sys/kernel/random/boot_id"

// BootID names the present boot of the operating system: it is another one after
// every restart. limit bounds the command; 0 is that of the SSH client. An account
// whose password has expired cannot read it, which is an *ssh.ExitError or another
// error of SSH.
func (s *Switch) BootID(ctx context.Context, login node.Credentials, limit time.Duration) (string, error) {
	shell, err := s.SSHAs(login)
	if err != nil {
		return "", err
	}
	defer shell.Close()
	out, err := shell.Exec(ctx, ssh.Command{Line: bootCommand, Limit: limit})
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(out.Stdout)), nil
}
