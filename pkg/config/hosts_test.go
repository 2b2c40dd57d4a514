// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/config"
)

func TestHostSections(t *testing.T) {
	program := filepath.Join(t.TempDir(), "validate")
	require.NoError(t, os.WriteFile(program, nil, 0o700))
	command := "validation.command=" + program + ",--node,{node_id}"
	for name, tt := range map[string]struct {
		process config.Process
		set     []string
		fault   string
	}{
		"defaults":         {process: config.ProcessComputeAgent},
		"validator":        {process: config.ProcessComputeAgent, set: []string{command}},
		"policy":           {set: []string{"ssh.host_key_policy=maybe"}, fault: "ssh.host_key_policy"},
		"off with a file":  {set: []string{"ssh.host_key_policy=off", "ssh.known_hosts=/x"}, fault: "ssh.known_hosts"},
		"legacy family":    {set: []string{"ssh.legacy_families=powershelf"}, fault: "ssh.legacy_families[0]"},
		"release alone":    {set: []string{"validation.release_command=/bin/true"}, fault: "validation.release_command"},
		"placeholder":      {set: []string{"validation.command=/bin/true,{password}"}, fault: "unknown placeholder {password}"},
		"override outside": {set: []string{"validation.command=/bin/true,{config_override}"}, fault: "unknown placeholder"},
		"relative":         {set: []string{command, "validation.work_dir=here"}, fault: "validation.work_dir"},
		"long release":     {set: []string{command, "validation.last_release_limit=3m"}, fault: "validation.last_release_limit"},
		"no program":       {process: config.ProcessComputeAgent, set: []string{"validation.command=/no/where"}, fault: "is no program"},
		"not on this host": {process: config.ProcessAPI, set: []string{"validation.command=/no/where", "tls.insecure=true"}},
		"relative program": {process: config.ProcessComputeAgent, set: []string{"validation.command=validate"}, fault: "absolute path of a program"},
	} {
		t.Run(name, func(t *testing.T) {
			process := tt.process
			if process == "" {
				process = config.ProcessComputeAgent
			}
			_, err := config.Load(config.Options{
				Process: process, Optional: true, Environ: []string{"RACKBUS_ALLOW_INSECURE=1"},
				Set: append([]string{"keys.dir=/keys"}, tt.set...),
			})
			if tt.fault == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.fault)
		})
	}
}

func TestKnownHosts(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	c := config.Default()
	path, err := c.KnownHosts()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(home, ".ssh", "known_hosts"), path)
	t.Setenv("HOME", "")
	path, err = c.KnownHosts()
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(path))
	c.SSH.KnownHosts = "/etc/rackbus/known_hosts"
	path, err = c.KnownHosts()
	require.NoError(t, err)
	require.Equal(t, "/etc/rackbus/known_hosts", path)
	c.SSH.HostKeyPolicy = "off"
	path, err = c.KnownHosts()
	require.NoError(t, err)
	require.Empty(t, path)
	require.False(t, c.LegacySSH("switch"))
	require.True(t, strings.HasSuffix(c.ValidationLogDir(), "validation/logs"))
}
