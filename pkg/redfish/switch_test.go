// SPDX-License-Identifier: Apache-2.0

package redfish_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/redfish"
)

// Every switch type of the inventory has a BMC profile, and nothing else has.
func TestSwitchProfiles(t *testing.T) {
	t.Parallel()
	for _, typ := range node.Types() {
		p, ok := redfish.SwitchProfile(typ.ID)
		require.Equal(t, typ.Family == node.FamilySwitch, ok, typ.ID)
		if !ok {
			continue
		}
		require.NoError(t, p.Validate())
		_, other := redfish.LookupProfile(typ.ID)
		require.False(t, other, "updates over Redfish are not for switches")
		p.SystemID = ""
		require.ErrorContains(t, p.Validate(), "SystemID")
	}
}
