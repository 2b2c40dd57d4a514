// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/firmware/flashplan"
	"github.com/rackbus/rackbus/pkg/firmware/manifest"
	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/pkg/product"
	"github.com/rackbus/rackbus/pkg/redfish"
	"github.com/rackbus/rackbus/sim/bmc"
	"github.com/rackbus/rackbus/sim/nvswitch"
)

var update = flag.Bool("hardware.update", false, "write docs/hardware.md")

// root is the repository, seen from this folder.
const root = "../.."

const head = `# What is shown of each node type

For every compute tray and power shelf: what each operation does, and the tests that show it, by the folder of their
package. All of them drive simulated devices over real sockets; those in ` + "`test/e2e`" + ` drive the programs as they are deployed.
Switch trays are not listed here.

The tables are checked by ` + "`go test ./test/hardware`" + `: every node type is there, no cell is empty, and every test exists.
` + "`-args -hardware.update`" + ` writes them anew from ` + "`table_test.go`" + ` and ` + "`faults_test.go`" + ` in ` + "`test/hardware`" + `, and
` + "`-timeout=0 -args -hardware.run`" + ` runs every test that they name. The [faults](#faults) are at the end. [adding-hardware.md](adding-hardware.md) tells how a type gets here.
`

const faultsHead = `
## Faults

What devices of these types do wrong, what comes of it, and the tests that show it.

`

func document() string {
	var b strings.Builder
	b.WriteString(head)
	for _, t := range hardware() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", t, named(t))
		table(&b, "Operation", rows(t))
	}
	b.WriteString(faultsHead)
	table(&b, "Fault", faultRows())
	return b.String()
}

func table(b *strings.Builder, first string, rows []row) {
	fmt.Fprintf(b, "| %s | Outcome | Tests |\n| --- | --- | --- |\n", first)
	for _, r := range rows {
		tests := make([]string, len(r.tests))
		for i, c := range r.tests {
			tests[i] = fmt.Sprintf("%s `%s`", c.folder, c.name)
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", r.operation, r.outcome, strings.Join(tests, ", "))
	}
}

// named tells how a request names a type.
func named(t node.Type) string {
	if t.DescriptorOnly() {
		return fmt.Sprintf("By descriptor: role `%s`, vendor `%s`, product family `%s`.", t.Role, t.Vendor, t.ProductFamily)
	}
	return fmt.Sprintf("`NodeType` %d.", t.Number)
}

func TestDocument(t *testing.T) {
	path := filepath.Join(root, "docs", "hardware.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(document()), 0o644))
	}
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, document(), string(written), "go test ./test/hardware -args -hardware.update repairs it")
}

// Every compute tray and power shelf is there, with all operations, and each has an outcome and a test.
func TestNoCellIsEmpty(t *testing.T) {
	require.NotEmpty(t, hardware())
	for _, typ := range hardware() {
		seen := map[string]bool{}
		for _, r := range rows(typ) {
			require.NotEmpty(t, r.outcome, "%s: %s", typ, r.operation)
			require.NotEmpty(t, r.tests, "%s: %s", typ, r.operation)
			require.False(t, seen[r.operation], "%s: %s twice", typ, r.operation)
			seen[r.operation] = true
		}
		for _, operation := range []string{
			"power read", "power OFF", "power ON", "power RESET", "power FORCE_OFF", "power FORCE_ON", "power GRACEFUL_SHUTDOWN",
			"power GRACEFUL_RESTART", "power FORCE_RESTART", "device info", "firmware inventory", "update", "activation",
			"verification", "takeover after a crash", "cold reboot",
		} {
			require.True(t, seen[operation], "%s: %s", typ, operation)
		}
	}
}

// Every row of the product table has all its parts, and there is a simulated device for each and for nothing else.
func TestTableIsComplete(t *testing.T) {
	devices := 0
	for _, typ := range node.Types() {
		profile, ok := redfish.LookupProfile(typ.ID)
		if typ.Family == node.FamilySwitch {
			profile, ok = redfish.SwitchProfile(typ.ID)
			_, simulated := nvswitch.ModelOf(typ.ID)
			require.True(t, simulated, "%s: sim/nvswitch/options.go", typ)
		} else {
			devices++
			model, simulated := bmc.ModelOf(typ.ID)
			require.True(t, simulated, "%s: %s", typ, simTable)
			require.Equal(t, typ.Descriptor(), model.Descriptor(), "%s", typ)
			require.Equal(t, typ.DescriptorOnly(), model.DescriptorOnly(), "%s", typ)
		}
		require.True(t, ok, "%s", typ)
		require.NoError(t, profile.Validate(), "%s", typ)
		require.True(t, flashplan.Supported(typ.ID), "%s", typ)
		require.NotEmpty(t, typ.Rack.Model(), "%s", typ)

		require.NotEmpty(t, manifest.Keys(typ), "%s", typ)
		found, ok := product.ByID(typ.ID)
		require.True(t, ok, "%s", typ)
		for _, c := range found.Components {
			// What manifests resolve to is what updates of the type take.
			target := flashplan.Target{Key: c.Key, Component: c.Target, File: "prod/a" + c.File.Word + c.File.Suffix}
			if c.InBand {
				target.File = "prod/a.bin"
			}
			_, err := flashplan.Plan(typ.ID, []flashplan.Target{target}, flashplan.Options{Activate: true})
			require.NoError(t, err, "%s: %s", typ, c.Key)
		}
	}
	require.Len(t, bmc.Models(), devices, simTable)
}
