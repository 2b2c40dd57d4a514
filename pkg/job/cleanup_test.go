// SPDX-License-Identifier: Apache-2.0

package job

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckCleanup(t *testing.T) {
	for name, tc := range map[string]struct {
		plan []string
		ok   bool
	}{
		"none":                     {nil, true},
		"a directory":              {[]string{"cache"}, true},
		"deeper ones":              {[]string{"cache/a", "cache/b..c"}, true},
		"empty":                    {[]string{""}, false},
		"the directory itself":     {[]string{"."}, false},
		"absolute":                 {[]string{"/etc"}, false},
		"upwards":                  {[]string{"../other"}, false},
		"upwards further in":       {[]string{"a/../../other"}, false},
		"not in its shortest form": {[]string{"a/./b"}, false},
		"trailing slash":           {[]string{"a/"}, false},
		"not UTF-8":                {[]string{"a\xff"}, false},
		"zero byte":                {[]string{"a\x00"}, false},
		"one of several":           {[]string{"a", ".."}, false},
		"too many":                 {make([]string, MaxCleanup+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckCleanup(tc.plan)
			if tc.ok {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrInvalidCleanup)
		})
	}
}

func TestOnlyTopLevelJobsHaveACleanupPlan(t *testing.T) {
	s := leafSpec()
	s.Cleanup = []string{"cache/a"}
	require.Equal(t, s.Cleanup, NewLeaf(s).Cleanup)
	require.Equal(t, s.Cleanup, NewParent(s, 2, true).Cleanup)
	require.Equal(t, s.Cleanup, NewCoordinator(s, nil, false).Cleanup)
	require.Empty(t, NewChild(testID(3), 1, s).Cleanup)
}
