// SPDX-License-Identifier: Apache-2.0

package flashplan

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

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
	// set, for the one with this id.
	Supplies bool
	Unit     string

	baseboard *Send
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

// ForBaseboard is the item for a package whose content says that it belongs on
// the GPU baseboard. It changes items that name no component only, because the
// words of a request weigh more than those of a package.
func (i Item) ForBaseboard() Item {
	if i.baseboard != nil {
		i.Send = *i.baseboard
	}
	return i
}

// Plan arranges the packages of a request for a node type. Its errors are *Error.
func Plan(nodeType string, targets []Target, o Options) ([]Group, error) {
	r, ok := ruleOf(nodeType)
	if !ok {
		return nil, invalid("firmware updates of node type %s are not supported by this version", nodeType)
	}
	if len(targets) == 0 {
		return nil, invalid("the update names no firmware targets")
	}
	items := make([]Item, len(targets))
	for i, t := range targets {
		t.Component = strings.TrimSpace(t.Component)
		item, err := r.item(t)
		if err != nil {
			return nil, err
		}
		item.Target, item.Index = t, i
		// The push to a shelf knows no such word; its images are sent as they are.
		item.Send.Force = o.Force && r.shelf == ""
		if item.baseboard != nil {
			item.baseboard.Force = o.Force
		}
		items[i] = item
	}
	if err := checkInBand(r, items, o); err != nil {
		return nil, err
	}
	groups, err := r.arrange(items, o)
	if err != nil {
		return nil, err
	}
	nameGroups(groups)
	return groups, nil
}

// nameGroups leaves the only group without a name.
func nameGroups(groups []Group) {
	if len(groups) == 1 {
		groups[0].Name = ""
	}
}

// arrangeDefault is one group in the given order; images for network devices go
// first, in a group of their own.
func arrangeDefault(items []Item, o Options) ([]Group, error) {
	inBand := slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Device == "" })
	others := slices.DeleteFunc(slices.Clone(items), func(i Item) bool { return i.Device != "" })
	var groups []Group
	if len(inBand) > 0 {
		groups = append(groups, Group{Name: "in_band", Kind: InBand, Items: inBand, Activate: o.Activate})
	}
	if len(others) > 0 {
		groups = append(groups, Group{
			Name: "out_of_band", Kind: OutOfBand, Items: others, Activate: o.Activate, Note: orderNote(others),
		})
	}
	return groups, nil
}

// orderNote tells of a BMC package that stands before an HMC package.
func orderNote(items []Item) string {
	tray := false
	for _, i := range items {
		switch {
		case tray && i.Send.Baseboard && len(i.Send.Scope) == 0:
			return "the BMC package stands before the HMC package; the order of the request stands, although HMC before BMC is advised"
		case !i.Send.Baseboard && !i.Supplies && len(i.Send.Scope) == 0:
			tray = true
		}
	}
	return ""
}
