// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/proto/nmxc"
)

func TestControllerFollowsItsTable(t *testing.T) {
	table := readTable(t, "nmxc.tsv")
	require.Len(t, table, 2+1+3+3+20+17+34, "the table itself has lost or gained rows")
	for i, r := range table {
		if r.kind == "package" {
			// Both packages come from one file on the switch, whose name is the scope of their rows.
			table[i].scope = r.name
		}
	}
	known := slices.Concat(describe(nmxc.File_nmx_c_proto), describe(nmxc.File_switch_client_proto))
	for _, d := range diff(table, known) {
		t.Error(d)
	}
}

// The underscores of the service's name are literal on the wire.
func TestControllerMethodPaths(t *testing.T) {
	require.Equal(t, "/nmx_c.NMX_Controller/Hello", nmxc.NMX_Controller_Hello_FullMethodName)
	require.Equal(t, "/nmx_c.NMX_Controller/GetStaticConfig", nmxc.NMX_Controller_GetStaticConfig_FullMethodName)
	require.Equal(t, "/nmx_c.NMX_Controller/SetStaticConfig", nmxc.NMX_Controller_SetStaticConfig_FullMethodName)
}
