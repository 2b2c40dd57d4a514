// SPDX-License-Identifier: Apache-2.0

package flash

import "encoding/json"

// Kind is the way a group of packages takes.
type Kind string

// The kinds.
const (
	// OutOfBand packages are pushed to the management controller.
	OutOfBand Kind = "out_of_band"
	// InBand images are flashed with Flint from the host operating system.
	InBand Kind = "in_band"
)

// Group is packages that are installed one after the other and brought into force
// together.
type Group struct {
	// Name is a short word, unique within the plan; empty for the only group.
	Name string
	Kind Kind
	// Items are the packages in their order.
	Items []Item
	// Activate says that the activation of the product follows.
	Activate bool
	// Restarts says that the packages come into force without an activation,
	// because the controller restarts itself.
	Restarts bool
	// Verification, when set, is the tag of the version check in the result.
	Verification string
	// Note is a remark on the order for the log, empty mostly.
	Note string
}

// Verified reports whether the versions are compared behind the group.
func (g Group) Verified() bool { return g.Activate || g.Restarts }

// Item is one package with all that is needed to send it.
type Item struct {
	Target
	// Index is the package's place in the request.
	Index int
	// Send is how it is pushed.
	Send Send
	// KeepConfiguration says that the controller has to be told first to keep its
	// settings.
	KeepConfiguration bool
	// LostTask is the inventory entry that decides whether an update has worked
	// whose task the controller forgot; empty where any entry may.
	LostTask string
	// Device is the kind of network device of an in-band image: cx7, cx8, bf3_nic.
	Device string
	// Supplies says that the image is for the power supplies of a shelf, Unit, when
	// set, for the one with this id. Part is what the request itself says of it; where it
	// is empty, Supplies is a guess by the file's name.
	Supplies bool
	Unit     string
	Part     ShelfPart

	baseboard *Send
}

// ShelfPart is a part of a power shelf that has firmware of its own.
type ShelfPart string

// The parts of a shelf, by the ends of their keys.
const (
	PartController ShelfPart = "PMC"
	PartSupplies   ShelfPart = "PSU"
)

// ByContent is the item of a package that nothing is known of yet: it is sent
// without targets, or as baseboard says when its content is for the GPU baseboard.
func ByContent(baseboard Send) Item { return Item{baseboard: &baseboard} }

// ForBaseboard is the item for a package whose content says that it belongs on
// the GPU baseboard. It changes items that name no component only, because the
// words of a request weigh more than those of a package.
func (i Item) ForBaseboard() Item {
	if i.baseboard != nil {
		i.Send = *i.baseboard
	}
	return i
}

// Forced is the item with the device asked, or not, to write what is installed
// already.
func (i Item) Forced(force bool) Item {
	i.Send.Force = force
	if i.baseboard != nil {
		baseboard := *i.baseboard
		baseboard.Force = force
		i.baseboard = &baseboard
	}
	return i
}

// Send is how a package is pushed.
type Send struct {
	// Targets are the Redfish targets of the push. Empty is sent as an empty list.
	Targets []string
	// OemParameters is a vendor part of the push, nil mostly.
	OemParameters json.RawMessage
	// Force asks the device to write what is installed already.
	Force bool
	// Baseboard says that the controller of the GPU baseboard (HMC) installs it.
	Baseboard bool
	// Scope are the inventory entries that the package is to change; empty means
	// all that it brings.
	Scope []string
}
