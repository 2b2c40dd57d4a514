// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"slices"
	"strings"
)

// The attribute keys of a node descriptor. Keys are compared exactly.
const (
	AttrRole             = "role"
	AttrVendor           = "vendor"
	AttrProductFamily    = "product_family"
	AttrInventoryProfile = "inventory_profile"
)

// Request field names used in errors.
const (
	fieldType       = "type"
	fieldDescriptor = "node_descriptor"
)

// Descriptor names a type by attributes. A nil *Descriptor means that the
// request brought none, which differs from one without attributes.
type Descriptor struct {
	Attributes map[string]string
}

// Profile is the expected-inventory profile a request names for a node. The
// zero Profile means that none was named.
type Profile struct {
	Set  bool
	Name string // trimmed; may be empty although Set
}

// Check returns an *Error when the profile is named but blank, or when known
// does not accept its name. Names are case-sensitive.
func (p Profile) Check(known func(name string) bool) error {
	field := fieldDescriptor + "." + AttrInventoryProfile
	switch {
	case !p.Set:
		return nil
	case p.Name == "":
		return &Error{CodeProfileEmpty, field, "inventory_profile must not be empty"}
	case !known(p.Name):
		return &Error{CodeProfileUnknown, field, fmt.Sprintf("unknown inventory_profile %q", p.Name)}
	default:
		return nil
	}
}

// Resolved is the outcome of Resolve.
type Resolved struct {
	Type    Type
	Profile Profile
}

// Descriptor returns the descriptor a normalised request carries: canonical
// attributes for a type without an enum value, plus the inventory profile if
// one was named; nil when there is nothing to carry.
func (r Resolved) Descriptor() *Descriptor {
	var attributes map[string]string
	if r.Type.DescriptorOnly() {
		attributes = r.Type.Descriptor()
	}
	if r.Profile.Set {
		if attributes == nil {
			attributes = make(map[string]string, 1)
		}
		attributes[AttrInventoryProfile] = r.Profile.Name
	}
	if attributes == nil {
		return nil
	}
	return &Descriptor{Attributes: attributes}
}

// Resolve finds the type a request means. A non-zero number (the value of
// rack_manager.NodeType; absent and UNSPECIFIED are both 0) wins, and the
// descriptor is then not validated at all. The inventory profile is taken from
// the descriptor in either case. Failures are of type *Error.
func Resolve(number int32, d *Descriptor) (Resolved, error) {
	profile := profileOf(d)
	if number != 0 {
		t, err := ResolveNumber(number)
		if err != nil {
			return Resolved{}, err
		}
		return Resolved{Type: t, Profile: profile}, nil
	}
	t, err := resolveDescriptor(d)
	if err != nil {
		return Resolved{}, err
	}
	return Resolved{Type: t, Profile: profile}, nil
}

// ResolveNumber returns the type of a number that must name one, as the keys
// of type-keyed request maps do. Zero is refused like an unknown number.
func ResolveNumber(number int32) (Type, error) {
	t, ok := ByNumber(number)
	if !ok {
		return Type{}, &Error{CodeUnknownType, fieldType, fmt.Sprintf("unknown node type value %d", number)}
	}
	return t, nil
}

// Normalize brings an attribute value into the form in which values are
// compared: trimmed, ASCII letters in lower case, without ' ', '-' and '_'.
// "Lite-On" becomes "liteon", "vr_nvl72" becomes "vrnvl72".
func Normalize(value string) string {
	// Trimming comes last: a removed character may have hidden white space.
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == ' ' || r == '-' || r == '_':
			return -1
		case r >= 'A' && r <= 'Z':
			return r + ('a' - 'A')
		default:
			return r
		}
	}, value))
}

// profileOf reads the inventory profile, which is kept even where the rest of
// the descriptor is ignored.
func profileOf(d *Descriptor) Profile {
	if d == nil {
		return Profile{}
	}
	name, ok := d.Attributes[AttrInventoryProfile]
	return Profile{Set: ok, Name: strings.TrimSpace(name)}
}

// resolveDescriptor checks in the order that decides which fault a client is
// told: unsupported keys (alphabetical), missing attributes, no match.
func resolveDescriptor(d *Descriptor) (Type, error) {
	if d == nil {
		return Type{}, &Error{CodeDescriptorRequired, fieldDescriptor,
			"node descriptor is required when node type is unspecified"}
	}
	required := []string{AttrRole, AttrVendor, AttrProductFamily}
	var unsupported []string
	for key := range d.Attributes {
		if key != AttrInventoryProfile && !slices.Contains(required, key) {
			unsupported = append(unsupported, key)
		}
	}
	if len(unsupported) > 0 {
		key := slices.Min(unsupported)
		return Type{}, &Error{CodeAttributeNotSupported, fieldDescriptor + "." + key,
			fmt.Sprintf("node descriptor attribute %s is not supported", key)}
	}
	for _, key := range required {
		if strings.TrimSpace(d.Attributes[key]) == "" {
			return Type{}, &Error{CodeAttributeMissing, fieldDescriptor + "." + key,
				fmt.Sprintf("node descriptor is missing required attribute %s", key)}
		}
	}
	role := Normalize(d.Attributes[AttrRole])
	vendor := Normalize(d.Attributes[AttrVendor])
	family := Normalize(d.Attributes[AttrProductFamily])
	for _, t := range types {
		if role == Normalize(t.Role) && vendor == Normalize(t.Vendor) && family == Normalize(t.ProductFamily) {
			return t, nil
		}
	}
	return Type{}, &Error{CodeUnsupportedDescriptor, fieldDescriptor,
		fmt.Sprintf("unsupported node descriptor role=%s, vendor=%s, product_family=%s", role, vendor, family)}
}

// Described is one entry of a request list that names its type by descriptor.
type Described[V any] struct {
	Descriptor *Descriptor
	Value      V
}

// FoldByType merges the two forms in which requests attach values to types: a
// map keyed by enum value and a list keyed by descriptor. A map entry beats a
// list entry of the same type; two list entries of one type, and map keys that
// name no type, are refused with an *Error.
func FoldByType[V any](byNumber map[int32]V, described []Described[V]) (map[Type]V, error) {
	merged := make(map[Type]V, len(byNumber)+len(described))
	for _, d := range described {
		t, err := resolveDescriptor(d.Descriptor)
		if err != nil {
			return nil, err
		}
		if _, twice := merged[t]; twice {
			return nil, &Error{CodeDuplicateDescriptor, fieldDescriptor,
				fmt.Sprintf("multiple node descriptors resolve to node type %s", t)}
		}
		merged[t] = d.Value
	}
	numbers := make([]int32, 0, len(byNumber))
	for n := range byNumber {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers) // the reported fault must not depend on map order
	for _, n := range numbers {
		t, err := ResolveNumber(n)
		if err != nil {
			return nil, err
		}
		merged[t] = byNumber[n]
	}
	return merged, nil
}
