// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRevision(t *testing.T) {
	set := func(pairs ...string) (s []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			s = append(s, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return s
	}
	require.Equal(t, "unknown", revision(nil))
	require.Equal(t, "unknown", revision(set("vcs.modified", "true")))
	require.Equal(t, "abc", revision(set("vcs.revision", "abc", "vcs.modified", "false")))
	require.Equal(t, "abc-dirty", revision(set("vcs.modified", "true", "vcs.revision", "abc")))
	require.NotEmpty(t, Version())
}
