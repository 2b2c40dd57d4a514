// SPDX-License-Identifier: Apache-2.0

package product

import "github.com/rackbus/rackbus/pkg/firmware/flash"

// Component is one component of manifests that a product takes, and where it
// goes. Two components of one key and target are two sources of the same step.
type Component struct {
	// Source is the component's name in manifests, matched exactly.
	Source string
	// Key is the name that callers select by.
	Key string
	// Target is what the node's update is told; empty lets the package decide.
	Target string
	// ByDefault components are applied without being asked for.
	ByDefault bool
	// Several says that every package of the key is taken, not just the first.
	Several bool
	// InBand components are flashed from the host operating system. The management
	// controller does not list them.
	InBand bool
	// ForgetsTask says that the controller loses the task of this update when it
	// restarts, so that the installed version has to tell, and the manifest has to
	// name it.
	ForgetsTask bool
	// File is what the name of a file must be like; zero takes any.
	File flash.File
	// Installed are the inventory entries that show the component's version; one
	// that ends in '*' stands for all that begin so.
	Installed []string
}

// severally is the same component with all its packages taken.
func (c Component) severally() Component {
	c.Several = true
	return c
}

// shownBy is the same component, with its version in other inventory entries.
func (c Component) shownBy(entries ...string) Component {
	c.Installed = entries
	return c
}

// inFiles is the same component, which files of some name are for.
func (c Component) inFiles(f flash.File) Component {
	c.File = f
	return c
}
