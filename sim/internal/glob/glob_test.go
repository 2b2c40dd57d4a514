// SPDX-License-Identifier: Apache-2.0

package glob

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	tests := []struct {
		pattern, text string
		want          bool
	}{
		{"", "anything/at all", true},
		{"compute-*", "compute-0001", true},
		{"compute-*", "powershelf-0001", false},
		{"/redfish/v1/Systems/*", "/redfish/v1/Systems/System_0", true},
		{"/redfish/v1/Systems/*", "/redfish/v1/Systems/System_0/Processors", false},
		{"/redfish/v1/**", "/redfish/v1/Systems/System_0/Processors", true},
		{"GPU_?", "GPU_3", true},
		{"GPU_?", "GPU_", false},
		{"a.b", "axb", false},
		{"/redfish/v1/Chassis/x/Actions/#y", "/redfish/v1/Chassis/x/Actions/#y", true},
	}
	for _, tt := range tests {
		require.Equal(t, tt.want, Compile(tt.pattern).Match(tt.text), "%q against %q", tt.text, tt.pattern)
	}
}
