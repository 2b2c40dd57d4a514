// SPDX-License-Identifier: Apache-2.0

package telemetry

import "runtime/debug"

// buildVersion is set by the linker:
// -ldflags "-X github.com/rackbus/rackbus/pkg/telemetry.buildVersion=v1.2.3".
var buildVersion string

// Version returns the version set at build time, else the revision of the
// source the binary was built from (with "-dirty" when it was modified), else
// "unknown".
func Version() string {
	if buildVersion != "" {
		return buildVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return revision(info.Settings)
}

func revision(settings []debug.BuildSetting) string {
	var rev, suffix string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	if rev == "" {
		return "unknown"
	}
	return rev + suffix
}
