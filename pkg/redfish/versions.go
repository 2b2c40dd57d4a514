// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"fmt"
	"strings"
)

// VersionStatus is the result of comparing versions.
type VersionStatus string

// The results.
const (
	VersionMatched    VersionStatus = "matched"
	VersionMismatch   VersionStatus = "mismatch"
	VersionUnverified VersionStatus = "unverified"
)

// ExpectedVersion is the version that one inventory entry should have.
type ExpectedVersion struct {
	// Name is an inventory name or URI.
	Name string
	// Aliases are looked for, in order, when there is no such entry: firmware
	// releases rename entries. One that ends in '*' stands for all names that begin so,
	// of which one that has the version counts before any other, the entry's own
	// included.
	Aliases []string
	// Version is what is expected; empty, "N/A" and "unknown" verify nothing.
	Version string
	// Required makes an entry that is not there a mismatch even without a version.
	Required bool
	// Unverified, when set, says why nothing can be expected of the entry.
	Unverified string
}

// comparable reports whether there is a version to compare with.
func (e ExpectedVersion) comparable() bool { return e.Unverified == "" && KnownVersion(e.Version) }

// KnownVersion reports whether a reading is a version. Components that are off or
// start read as empty, "N/A" or "unknown".
func KnownVersion(v string) bool {
	v = strings.TrimSpace(v)
	return v != "" && !strings.EqualFold(v, "N/A") && !strings.EqualFold(v, "unknown")
}

// ComponentVersion is the comparison of one entry.
type ComponentVersion struct {
	Name           string        `json:"name"`
	InventoryPath  string        `json:"inventory_path"`
	SystemVersion  string        `json:"system_version"`
	PackageVersion string        `json:"package_version"`
	Status         VersionStatus `json:"status"`
	Reason         string        `json:"reason,omitempty"`
}

// VersionReport is the comparison of all.
type VersionReport struct {
	Status               VersionStatus      `json:"status"`
	ComparableComponents int                `json:"comparable_components"`
	Components           []ComponentVersion `json:"components"`
	Mismatches           int                `json:"mismatches"`
}

// maxNamed is how many mismatches a text names.
const maxNamed = 5

// CompareVersions compares an inventory with what is expected, trimmed and
// without regard to case. An expected entry that is missing is a mismatch. With
// nothing comparable the report is unverified.
func CompareVersions(expected []ExpectedVersion, inventory []FirmwareItem) VersionReport {
	report := VersionReport{Status: VersionUnverified, Components: []ComponentVersion{}}
	for _, e := range expected {
		c := compareVersion(e, inventory)
		report.Components = append(report.Components, c)
		switch c.Status {
		case VersionMatched:
			report.ComparableComponents++
		case VersionMismatch:
			report.ComparableComponents++
			report.Mismatches++
		case VersionUnverified:
		}
	}
	switch {
	case report.Mismatches > 0:
		report.Status = VersionMismatch
	case report.ComparableComponents > 0:
		report.Status = VersionMatched
	}
	return report
}

func compareVersion(e ExpectedVersion, inventory []FirmwareItem) ComponentVersion {
	c := ComponentVersion{Name: leaf(e.Name), PackageVersion: strings.TrimSpace(e.Version)}
	item, found := findItem(e, inventory)
	if found {
		c.InventoryPath, c.SystemVersion = item.URI, strings.TrimSpace(item.Version)
	}
	switch {
	case !found && (e.Required || e.comparable()):
		c.Status, c.Reason = VersionMismatch, "not in the firmware inventory"
	case e.Unverified != "":
		c.Status, c.Reason = VersionUnverified, e.Unverified
	case !e.comparable():
		c.Status, c.Reason = VersionUnverified, "the package names no version"
	case sameVersion(c.SystemVersion, c.PackageVersion):
		c.Status = VersionMatched
	default:
		c.Status, c.Reason = VersionMismatch, "versions differ"
	}
	return c
}

func findItem(e ExpectedVersion, inventory []FirmwareItem) (FirmwareItem, bool) {
	var found *FirmwareItem
	for _, name := range append([]string{e.Name}, e.Aliases...) {
		prefix, pattern := strings.CutSuffix(name, anyEnd)
		for i := range inventory {
			item := &inventory[i]
			switch {
			case pattern && beginsWith(item.Name, prefix):
				if sameVersion(item.Version, e.Version) {
					return *item, true
				}
			case pattern, !strings.EqualFold(item.URI, name) && !strings.EqualFold(item.Name, leaf(name)):
				continue
			}
			if found == nil {
				found = item
			}
		}
	}
	if found == nil {
		return FirmwareItem{}, false
	}
	return *found, true
}

// sameVersion compares as versions are compared everywhere.
func sameVersion(a, b string) bool {
	return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b))
}

// Err gives an error that names up to five mismatches, nil without any.
func (r VersionReport) Err() error {
	if r.Status != VersionMismatch {
		return nil
	}
	var named []string
	for _, c := range r.Components {
		if c.Status != VersionMismatch || len(named) == maxNamed {
			continue
		}
		found := c.SystemVersion
		if found == "" {
			found = "none"
		}
		expected := c.PackageVersion
		if expected == "" {
			expected = "any version"
		}
		named = append(named, fmt.Sprintf("%s: expected %s, found %s", c.Name, expected, found))
	}
	text := strings.Join(named, "; ")
	if more := r.Mismatches - len(named); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return &VersionError{Report: r, text: text}
}

// VersionError is installed firmware that is not what it should be.
type VersionError struct {
	Report VersionReport
	text   string
}

// Error names the mismatches.
func (e *VersionError) Error() string { return e.text }
