// SPDX-License-Identifier: Apache-2.0

package computeagent_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/job"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
	"github.com/rackbus/rackbus/pkg/seal"
	rackbusv1 "github.com/rackbus/rackbus/proto/rackbus/v1"
	computeagent "github.com/rackbus/rackbus/services/compute-agent"
)

// The program runs the validator that the configuration names, with variables that
// only it can open, and releases the node.
func TestValidationFromConfiguration(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	script := filepath.Join(dir, "validate")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n"+
		`[ "$1" = release ] && { : > "$RACKBUS_WORK_DIR/released"; exit; }`+"\n"+
		`[ "$TOKEN" = pl4nted ] && printf '{"node": "%s", "override": "%s"}' "$1" "$3"`+"\n"), 0o700))
	public, err := seal.LoadPublic(b.KeyDir)
	require.NoError(t, err)
	sealer, err := seal.NewSealer(public)
	require.NoError(t, err)
	session, err := sealer.NewSession(node.FamilyCompute)
	require.NoError(t, err)
	text, err := seal.EncodeDocument(session, computeagent.EnvironmentKind, []byte("TOKEN=pl4nted\n"))
	require.NoError(t, err)
	environment := filepath.Join(dir, "environment")
	require.NoError(t, os.WriteFile(environment, text, 0o600))

	logs, stop := b.Run(computeagent.Program(), "validation.command="+script+",{node_id}",
		"validation.release_command="+script+",release", "validation.work_dir="+dir, "validation.environment_file="+environment)
	j := b.Await(b.Admit(b.node, nil, func(c *rackbusv1.JobCommand) {
		c.Type = string(job.TypeSystemValidation)
		c.Operation = &rackbusv1.JobCommand_SystemValidation{SystemValidation: &rackbusv1.SystemValidation{ConfigOverride: "quick"}}
	}))
	stop()
	require.Equal(t, job.StateCompleted, j.State, "%+v", j.Failure)
	result := decode(t, j.ResultJSON)
	require.Equal(t, map[string]any{"node": b.tray.ID(), "override": "quick"}, result["report"])
	require.Equal(t, true, result["released"])
	require.FileExists(t, filepath.Join(dir, "released"))
	require.NotContains(t, logs.String(), "pl4nted")
	require.NotContains(t, logs.String(), b.tray.Password())

	t.Run("a file in clear is refused at the start", func(t *testing.T) {
		require.NoError(t, os.WriteFile(environment, []byte("TOKEN=pl4nted\n"), 0o600))
		err := computeagent.RunOn(t.Context(), &process.Env{Config: b.config(
			"validation.command="+script, "validation.environment_file="+environment,
		)}, nil)
		require.ErrorContains(t, err, "not a sealed document")
		require.NotContains(t, err.Error(), "pl4nted")
	})
}

// config is the configuration of the agent with some keys set.
func (b *bench) config(set ...string) *config.Config {
	b.t.Helper()
	cfg, err := config.Load(config.Options{
		Process: config.ProcessComputeAgent, Optional: true, Environ: []string{}, Set: append(set, "keys.dir="+b.KeyDir),
	})
	require.NoError(b.t, err)
	return cfg
}
