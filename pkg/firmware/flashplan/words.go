// SPDX-License-Identifier: Apache-2.0

package flashplan

import "github.com/rackbus/rackbus/pkg/firmware/flash"

// The words of plans are those in which products write their rules.
type (
	// Target is one package as a request names it.
	Target = flash.Target
	// Options are what a request asks for beside its packages.
	Options = flash.Options
	// Kind is the way a group of packages takes.
	Kind = flash.Kind
	// Group is packages that are installed one after the other and brought into
	// force together.
	Group = flash.Group
	// Item is one package with all that is needed to send it.
	Item = flash.Item
	// Send is how a package is pushed.
	Send = flash.Send
)

// The kinds of groups.
const (
	// OutOfBand packages are pushed to the management controller.
	OutOfBand = flash.OutOfBand
	// InBand images are flashed with Flint from the host operating system.
	InBand = flash.InBand
)
