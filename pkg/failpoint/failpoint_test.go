// SPDX-License-Identifier: Apache-2.0

package failpoint_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/failpoint"
)

func TestUnarmedPointsDoNothing(t *testing.T) {
	var none *failpoint.Points
	require.NoError(t, none.Hit("fold.before_commit"))
	p, err := failpoint.Parse("a=error")
	require.NoError(t, err)
	require.NoError(t, p.Hit("b"))
}

func TestErrorOnTheNthHit(t *testing.T) {
	p, err := failpoint.Parse("a=error@2; b=error")
	require.NoError(t, err)
	require.NoError(t, p.Hit("a"))
	require.ErrorIs(t, p.Hit("a"), failpoint.ErrInjected)
	require.NoError(t, p.Hit("a"))
	require.ErrorIs(t, p.Hit("b"), failpoint.ErrInjected)
	require.ErrorIs(t, p.Hit("b"), failpoint.ErrInjected)
}

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	for _, text := range []string{"a", "a=explode", "a=kill@0", "a=kill@x"} {
		_, err := failpoint.Parse(text)
		require.Error(t, err, text)
	}
}

// TestKillEndsTheProcess runs itself as the process that dies.
func TestKillEndsTheProcess(t *testing.T) {
	if os.Getenv(failpoint.EnvVar) != "" {
		p, err := failpoint.FromEnv()
		require.NoError(t, err)
		require.NoError(t, p.Hit("here"))
		os.Exit(3)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestKillEndsTheProcess$")
	cmd.Env = append(os.Environ(), failpoint.EnvVar+"=here=kill")
	var died *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &died)
	status, ok := died.Sys().(syscall.WaitStatus)
	require.True(t, ok)
	require.True(t, status.Signaled())
	require.Equal(t, syscall.SIGKILL, status.Signal())
}
