// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/config"
	"github.com/rackbus/rackbus/pkg/failpoint"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/process"
)

func TestSemver(t *testing.T) {
	for version, want := range map[string]string{
		"1.2.3": "1.2.3", "0.1.0-rc.1+abc": "0.1.0-rc.1+abc",
		"v1.2.3": "0.0.0", "1.2": "0.0.0", "01.2.3": "0.0.0", "818110b-dirty": "0.0.0", "": "0.0.0",
	} {
		require.Equal(t, want, semver(version), version)
	}
}

func TestOpenerNeedsKeys(t *testing.T) {
	cfg := config.Default()
	cfg.Keys.Dir = t.TempDir()
	_, err := Opener(cfg, node.FamilySwitch)
	require.ErrorContains(t, err, "start switch agent")
}

func TestFailpointsAreChecked(t *testing.T) {
	t.Setenv(failpoint.EnvVar, "=;=")
	_, err := New(&process.Env{Config: config.Default()}, nil, Work{Family: node.FamilySwitch})
	require.ErrorContains(t, err, failpoint.EnvVar)
}
