// SPDX-License-Identifier: Apache-2.0

package flash

import "path"

// Target is one package as a request names it.
type Target struct {
	// Component is a logical name (BMC, HMC, CPU_0, ...), a firmware inventory
	// member or a Redfish URI; empty lets the package decide.
	Component string
	// Key is the target key of a firmware object, for example LiteOnPSU.
	Key string
	// File is the package's path or base name.
	File string
	// ExpectedVersion is what the component should read afterwards, empty when
	// only the package tells.
	ExpectedVersion string
}

// Label names the target for people.
func (t Target) Label() string {
	if t.Component == "" {
		return PackageDerived
	}
	return t.Component
}

// BaseName is the name of the file without its folders.
func (t Target) BaseName() string { return path.Base(t.File) }

// PackageDerived stands for a package that finds its components itself.
const PackageDerived = "package-derived"

// Options are what a request asks for beside its packages.
type Options struct {
	// Activate asks to bring the firmware into force.
	Activate bool
	// Mixed allows in-band packages beside others.
	Mixed bool
	// Force asks to write what is installed already.
	Force bool
}
