// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rackbus/rackbus/pkg/job"
)

// stops are the tests that stop jobs in the queue and in each of their stages. Those of all types that switches know are
// one test, with the types as names of its parts.
func stops() map[job.Type][]cited {
	const jobs, switches = "services/jobs", "services/switch-agent"
	out := map[job.Type][]cited{
		job.TypeFirmwareUpdate:     {{trays, "TestStopUpdate"}, {shelves, "TestStopUpdate"}, {switches, "TestStop"}},
		job.TypeNodeDiagnostics:    {{trays, "TestStopDiagnostics"}, {shelves, "TestStopDiagnostics"}, {switches, "TestStop"}},
		job.TypeSystemValidation:   {{trays, "TestStopValidation"}},
		job.TypeColdRebootSequence: {{jobs, "TestStopColdReboot"}},
		job.TypeArtifactDownload:   {{jobs, "TestStopDownload"}},
		job.TypeFirmwarePlanCheck:  {{"services/api", "TestStopPlanCheck"}},
	}
	for _, typ := range []job.Type{
		job.TypeSwitchCertificate, job.TypeSwitchMtlsDisable, job.TypeSwitchSdnFactoryDefaultReset, job.TypeSwitchFactoryDefaultReset,
		job.TypeSwitchSystemPasswordUpdate, job.TypeSwitchSystemImageUpdate, job.TypeConfigureScaleUpFabricManager2,
	} {
		out[typ] = []cited{{switches, "TestStop"}}
	}
	return out
}

// Each type of job is stopped by a test.
func TestEveryTypeIsStopped(t *testing.T) {
	constants, err := os.ReadFile(filepath.Join(root, "pkg/job/type.go"))
	require.NoError(t, err)
	require.Len(t, stops(), len(job.Types()))
	for _, info := range job.Types() {
		require.NotEmpty(t, stops()[info.Type], info.Type)
		name := regexp.MustCompile(`(?m)^\t(Type\w+) +Type = "` + string(info.Type) + `"$`).FindSubmatch(constants)
		require.NotNil(t, name, info.Type)
		for _, c := range stops()[info.Type] {
			require.NoError(t, read(t, c.folder).has(c.name), c.folder)
			if c.name == "TestStop" {
				text, err := os.ReadFile(filepath.Join(root, c.folder, "stop_test.go"))
				require.NoError(t, err)
				require.Regexp(t, `(?m)^\t\tjob\.`+string(name[1])+`: \{$`, string(text))
			}
		}
	}
}
