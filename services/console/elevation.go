// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rackbus/rackbus/pkg/node"
	"github.com/rackbus/rackbus/proto/rackmanager"
)

// kind is what a slot of a rack holds.
type kind string

const (
	kindShelf   kind = "shelf"
	kindCompute kind = "compute"
	kindSwitch  kind = "switch"
	// kindOther are nodes that jobs were given without registering them.
	kindOther kind = "other"
)

// Label returns the words for the kind.
func (k kind) Label() string {
	switch k {
	case kindShelf:
		return "power shelf"
	case kindCompute:
		return "compute tray"
	case kindSwitch:
		return "switch tray"
	case kindOther:
		return "not registered"
	}
	return string(k)
}

// slot is a node in its rack.
type slot struct {
	ID    string
	Kind  kind
	Model string
}

// rackSlots is a rack with its nodes from top to bottom.
type rackSlots struct {
	ID    string
	Model string
	Slots []slot
}

// inventory reads the racks and keeps them for a moment, so that many browsers cost
// the store no more than one.
type inventory struct {
	client rackmanager.RackManagerClient
	maxAge time.Duration

	mu     sync.Mutex
	read   time.Time
	racks  []rackSlots
	digest uint64
}

// get returns the racks in natural order, and a number that changes with them.
func (i *inventory) get(ctx context.Context) ([]rackSlots, uint64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.read.IsZero() && time.Since(i.read) < i.maxAge {
		return i.racks, i.digest, nil
	}
	ids, err := i.client.ListRacks(ctx, &rackmanager.ListRacksRequest{})
	if err != nil {
		return nil, 0, fmt.Errorf("list racks: %w", err)
	}
	nodes, err := i.client.ListNodeInventory(ctx, &rackmanager.ListNodeInventoryRequest{})
	if err != nil {
		return nil, 0, fmt.Errorf("list nodes: %w", err)
	}
	i.racks = arrange(ids.GetRackIds(), nodes.GetNodes())
	i.read, i.digest = time.Now(), digestOf(i.racks)
	return i.racks, i.digest, nil
}

func digestOf(racks []rackSlots) uint64 {
	h := fnv.New64a()
	for _, r := range racks {
		fmt.Fprintf(h, "%q", r.ID)
		for _, s := range r.Slots {
			fmt.Fprintf(h, "%q%q", s.ID, s.Kind)
		}
	}
	return h.Sum64()
}

// arrange makes elevations of what is registered.
func arrange(rackIDs []string, nodes []*rackmanager.NodeInventoryInfo) []rackSlots {
	racks := map[string]*rackSlots{}
	add := func(id string) *rackSlots {
		if racks[id] == nil {
			racks[id] = &rackSlots{ID: id}
		}
		return racks[id]
	}
	for _, id := range rackIDs {
		add(id)
	}
	for _, n := range nodes {
		r := add(n.GetRackId())
		s, rack := slotOf(n)
		r.Slots = append(r.Slots, s)
		if model := rack.Model(); model != "" {
			r.Model = model
		}
	}
	out := make([]rackSlots, 0, len(racks))
	for _, r := range racks {
		r.Slots = stack(r.Slots)
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b rackSlots) int { return natural(a.ID, b.ID) })
	return out
}

func slotOf(n *rackmanager.NodeInventoryInfo) (slot, node.RackType) {
	s := slot{ID: n.GetNodeId(), Kind: kindCompute}
	attributes := n.GetNodeDescriptor().GetAttributes()
	role, family := attributes[node.AttrRole], attributes[node.AttrProductFamily]
	typ, known := node.ByNumber(int32(n.GetType()))
	if known {
		role, family = typ.Role, typ.ProductFamily
	} else {
		for _, t := range node.Types() {
			if t.ProductFamily == family {
				typ = t
			}
		}
	}
	s.Model = strings.ToUpper(family)
	switch role {
	case "switch":
		s.Kind = kindSwitch
	case "power_shelf":
		s.Kind = kindShelf
	}
	return s, typ.Rack
}

// stack puts nodes where an NVL72 rack has such: half of the shelves at the top, ten of
// eighteen trays above the switches, eight below, the other shelves at the bottom. The
// API does not know the true slots without asking the hardware, so within a kind the
// order is that of the names.
func stack(slots []slot) []slot {
	by := map[kind][]slot{}
	for _, s := range slots {
		by[s.Kind] = append(by[s.Kind], s)
	}
	for _, list := range by {
		slices.SortFunc(list, func(a, b slot) int { return natural(a.ID, b.ID) })
	}
	const upper, all = 10, 18
	shelves := (len(by[kindShelf]) + 1) / 2
	trays := (len(by[kindCompute])*upper + all - 1) / all
	return slices.Concat(by[kindShelf][:shelves], by[kindCompute][:trays], by[kindSwitch],
		by[kindCompute][trays:], by[kindShelf][shelves:], by[kindOther])
}

// natural orders texts with numbers as people do: rack-2 before rack-10.
func natural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			if c := strings.Compare(x, y); c != 0 {
				return c
			}
			if na != nb {
				return na - nb
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits returns how many digits a text begins with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// elementID names the element of a page that shows a rack or a node.
func elementID(prefix, rack, nodeID string) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q%q", rack, nodeID)
	return fmt.Sprintf("%s-%x", prefix, h.Sum64())
}
