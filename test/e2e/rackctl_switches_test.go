// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fabricSettings: the fabric is given certificates and a topology.
func (d *desk) fabricSettings(t *testing.T) {
	d.ends(t, exitUsage, "switch certificate -f rack.csv")
	d.ends(t, exitUsage, "switch certificate -f rack.csv --service odd")
	d.ok(t, "switch certificate --wait -f rack.csv --service nvue-api")
	for _, verb := range []string{"off", "on"} {
		require.Contains(t, d.ok(t, "switch fabric telemetry "+verb+" -f rack.csv"), verb)
		d.ends(t, exitNotFound, "switch fabric telemetry "+verb+" -f rack.csv compute-0001")
	}
	require.Contains(t, d.ok(t, "switch certificate --wait --test -f rack.csv --service nvue-api,fabric-manager,fabric-telemetry,fabric-telemetry-interface"), "completed")
	d.ends(t, exitUsage, "switch fabric configure -f rack.csv")
	d.ends(t, exitUsage, "switch fabric configure -f rack.csv --set odd --topology "+topology)
	require.Contains(t, d.ok(t, "switch fabric configure --wait -f rack.csv --set sm_config:MAX_OP_VLS=4 --topology "+topology), "completed")
	require.Equal(t, "4", d.rack.Switch(primary).StaticConfig("sm_config", "MAX_OP_VLS"))
}

// fabricWork: the fabric is looked at, switched off and on, and attested.
func (d *desk) fabricWork(t *testing.T) {
	require.Contains(t, d.ok(t, "switch fabric status -f rack.csv"), topology)
	require.Contains(t, d.ok(t, "switch fabric services -f rack.csv"), "green")
	require.NotEmpty(t, d.told(t, "switch fabric state -f rack.csv")[primary])
	for _, what := range []string{"status", "services", "state", "disable", "enable"} {
		d.ends(t, exitNotFound, "switch fabric "+what+" -f rack.csv compute-0001")
	}
	d.ok(t, "switch fabric disable -f rack.csv "+primary)
	require.Equal(t, "disabled", d.rack.Switch(primary).Config("/cluster/state"))
	d.ok(t, "switch fabric enable -f rack.csv "+primary)
	require.Equal(t, "enabled", d.rack.Switch(primary).Config("/cluster/state"))
	nonce := hex.EncodeToString([]byte("a nonce of thirty-two bytes, yes"))
	require.Contains(t, d.ok(t, "switch attest -f rack.csv --nonce "+nonce), "ok")
	d.ends(t, exitUsage, "switch attest -f rack.csv --nonce odd")
}

func (d *desk) switchFiles(t *testing.T) {
	require.Equal(t, "{}\n", d.ok(t, "switch image list lab/"+primary), "no image was sent to it yet")
	d.ends(t, exitNotFound, "switch image list lab/switch-0009")
	d.ends(t, exitUsage, "switch image update -f rack.csv")
	d.ok(t, "switch image update --wait -f rack.csv "+primary+" --image "+servedImage)
	require.Equal(t, "nvos-25.02.5550", d.rack.Switch(primary).Images().Current)
	require.Contains(t, d.ok(t, "switch image list lab/"+primary), servedImage)
	require.Contains(t, d.ok(t, "switch firmware list --component bmc lab/"+primary), "actual-firmware")
	d.ends(t, exitUsage, "switch firmware list --component odd lab/"+primary)
	d.WriteFirmware("cpld.vme", make([]byte, 4096))
	d.ok(t, "switch firmware push --component cpld --image cpld.vme lab/"+primary)
	d.ends(t, exitFailed, "switch firmware push --component cpld --image absent.vme lab/"+primary)

	d.ends(t, exitUsage, "switch image apply -f rack.csv")
	d.await(t, "firmware object list --available --hardware mixed", func(list map[string]any) bool { return len(list["objects"].([]any)) > 0 })
	d.ok(t, "switch image apply --wait -f rack.csv switch-0002 --object "+d.release.id)
	require.Equal(t, "nvos-25.02.4440", d.rack.Switch("switch-0002").Images().Current)
}

// switchResets: a new password, and back to the beginning.
func (d *desk) switchResets(t *testing.T) {
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "new.pw"), []byte("Renewed-pw-1\n"), 0o600))
	d.ends(t, exitUsage, "switch password -f rack.csv --of-user "+switchUser)
	d.ok(t, "switch password --wait -f rack.csv --new-password-file new.pw --of-user "+switchUser)
	for _, s := range d.rack.Switches() {
		require.Equal(t, "Renewed-pw-1", s.UserPassword(switchUser))
	}
	d.ends(t, exitJob, "switch sdn-reset --wait --yes -f rack.csv "+primary)
	d.writeInventory(t, "Renewed-pw-1")
	d.ok(t, "nodes update -f rack.csv --type switch_gb200_nvidia")
	d.ends(t, exitUsage, "switch sdn-reset -f rack.csv")
	d.ok(t, "switch sdn-reset --wait --yes -f rack.csv "+primary)
	require.Empty(t, d.rack.Switch(primary).StaticConfig("fm_config", "MNNVL_TOPOLOGY"))
	d.ends(t, exitUsage, "switch mtls disable -f rack.csv --service nvue-api")
	d.ok(t, "switch mtls disable --wait --yes -f rack.csv --service nvue-api,fabric-manager")
	d.ends(t, exitUsage, "switch factory-reset -f rack.csv switch-0002")
	d.ok(t, "switch factory-reset --wait --yes -f rack.csv switch-0002")
}
