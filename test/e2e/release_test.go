// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/sim/artifacts"
	"github.com/rackbus/rackbus/sim/firmwarepackage"
)

// file is one firmware file of a release and the component of the manifest that it belongs to.
type file struct {
	board, component, version string
	// kind is the file's short name in a test.
	kind    string
	name    string
	content []byte
}

// release is a milestone of an invented product, with files for every tray and shelf.
type release struct {
	id     string
	config string
	// kinds are short names of the files by the digest of their content.
	kinds map[string]string
	// versions are what the files bring, by these names.
	versions map[string]string
}

// pldm builds a package of one version.
func pldm(t *testing.T, name, version string, components ...string) []byte {
	t.Helper()
	spec := firmwarepackage.Spec{Version: name}
	for _, c := range components {
		spec.Components = append(spec.Components, firmwarepackage.Component{Name: c, Version: version})
	}
	content, err := firmwarepackage.Build(spec)
	require.NoError(t, err)
	return content
}

// archive builds an image of a power shelf.
func archive(t *testing.T, purpose, version string) []byte {
	t.Helper()
	content, err := firmwarepackage.ShelfArchive(purpose, version, "shelf", []byte(purpose+" "+version))
	require.NoError(t, err)
	return content
}

// newRelease builds the n-th release, n below 10, and serves its files. Trays of all types share one board, so the file
// for the HMC has the name that Supermicro trays ask for. Of the two for the BMC those take the second, Wiwynn trays
// take both, and all others the first.
func newRelease(t *testing.T, s *artifacts.Server, n int) release {
	t.Helper()
	hmc, bios, bmc, pmc := fmt.Sprintf("9.1.%d", n), fmt.Sprintf("9.2.%d", n), fmt.Sprintf("9.3.%d", n), fmt.Sprintf("9.4.%d", n)
	supply := fmt.Sprintf("F%dF%d", n, n)
	deltaPMC, err := firmwarepackage.Build(firmwarepackage.DeltaController(pmc))
	require.NoError(t, err)
	named := func(pattern string) string { return fmt.Sprintf(pattern, n) }
	biosFile, obmcFile, supplyFile := "bios_"+bios+".bin", "obmc_"+bmc+".bin", "sp-2552_"+supply+"_x.bin"
	const tray, shelf = "Compute Node", "Power Shelf"
	files := []file{
		{tray, "HMC", hmc, "HMC", named("hmc_nosbios_r%d.fwpkg"), pldm(t, named("nvfw_P4059_r%d"), hmc, "HMC", "GPU")},
		{tray, "BIOS", bios, "BIOS", biosFile, firmwarepackage.Raw(biosFile, 4096)},
		{tray, "BMC", bmc, "BMC", named("tray_r%d.ima"), pldm(t, named("nvfw_P4058_r%d"), bmc, "BMC")},
		{tray, "BMC", bmc, "OBMC", obmcFile, firmwarepackage.Raw(obmcFile, 4096)},
		{shelf, "LiteOn PMC", "r" + pmc, "PMC", named("liteon_pmc_r%d.tar"), archive(t, "OPENBMC", "r"+pmc)},
		{shelf, "LiteOn PSU", fmt.Sprintf("0xf%d / 0xf%d", n, n), "PSU", supplyFile, firmwarepackage.Raw(supplyFile, 4096)},
		{shelf, "Delta-PMC", pmc, "Delta PMC", named("delta_pmc_r%d.fwpkg"), deltaPMC},
		{shelf, "Delta-PSU", fmt.Sprintf("010%d010%d", n, n), "Delta PSU", named("delta_psu_r%d.tar"), archive(t, "DELTA-PSU", named("010%d"))},
	}
	r := release{id: named("MIXED72_9.%d"), kinds: map[string]string{}, versions: map[string]string{}}
	components := map[string]map[string]any{}
	boards := map[string][]any{}
	for _, f := range files {
		path := named("r%d/") + f.name
		s.Put(path, f.content)
		sum := sha256.Sum256(f.content)
		digest := hex.EncodeToString(sum[:])
		r.kinds[digest], r.versions[f.component] = f.kind, f.version
		location := map[string]any{"Location": s.URL(path), "LocationType": "https", "Type": "Firmware", "Sha256": digest}
		if c, listed := components[f.component]; listed {
			c["Locations"] = append(c["Locations"].([]any), location)
			continue
		}
		c := map[string]any{"Component": f.component, "Version": f.version, "Type": "Prod", "Locations": []any{location}}
		components[f.component], boards[f.board] = c, append(boards[f.board], c)
	}
	var skus []any
	for _, role := range []string{tray, shelf} {
		skus = append(skus, map[string]any{"Name": role, "Type": role, "Components": map[string]any{"Firmware": boards[role]}})
	}
	config, err := json.Marshal(map[string]any{
		"ProductName": "MIXED72", "Milestones": []any{map[string]any{"Name": named("9.%d"), "BoardSKUs": skus}},
	})
	require.NoError(t, err)
	r.config = string(config)
	return r
}

// story is what a device of a type takes of a release, in order; "restart" is the activation.
func story(nodeType string) []string {
	const restart = "restart"
	switch {
	case strings.HasSuffix(nodeType, "_supermicro"):
		// The BMC restarts itself.
		return []string{"HMC", restart, "BIOS", restart, "OBMC"}
	case strings.HasSuffix(nodeType, "_wiwynn"):
		return []string{"HMC", "BMC", "OBMC", restart}
	case strings.HasSuffix(nodeType, "_liteon"):
		return []string{"PMC", "PSU", restart}
	case strings.HasSuffix(nodeType, "_delta"):
		return []string{"Delta PMC", "Delta PSU", restart}
	default:
		return []string{"HMC", "BMC", restart}
	}
}

// shown are the inventory entries of a type by the component whose version they show.
func shown(nodeType string) map[string][]string {
	switch {
	case strings.HasSuffix(nodeType, "_supermicro"):
		return map[string][]string{"HMC": {"HGX_FW_BMC_0"}, "BIOS": {"HGX_FW_CPU_0", "HGX_FW_CPU_1"}, "BMC": {"FW_BMC_0"}}
	case strings.HasSuffix(nodeType, "_lenovo"):
		return map[string][]string{"HMC": {"HGX_FW_BMC_0"}, "BMC": {"BMC"}}
	case strings.HasSuffix(nodeType, "_liteon"):
		return map[string][]string{"LiteOn PMC": {"pmc_5c3f81d0"}, "LiteOn PSU": numbered("powerdevice", 0)}
	case strings.HasSuffix(nodeType, "_delta"):
		return map[string][]string{"Delta-PMC": {"FW_PMC_primary"}, "Delta-PSU": numbered("FW_PSU_", 1)}
	default:
		return map[string][]string{"HMC": {"HGX_FW_BMC_0"}, "BMC": {"FW_BMC_0"}}
	}
}

// supplies is how many power supplies a shelf has.
const supplies = 6

func numbered(prefix string, first int) []string {
	names := make([]string, supplies)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", prefix, first+i)
	}
	return names
}
