// SPDX-License-Identifier: Apache-2.0

package redfish

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// WriteProtectError says that firmware cannot be written.
type WriteProtectError struct {
	// Hardware is the chassis whose hardware write protect is on, if it is.
	Hardware string
	// Components are the inventory members that are write-protected.
	Components []string
}

// Error names what is protected.
func (e *WriteProtectError) Error() string {
	if e.Hardware != "" {
		return fmt.Sprintf("hardware write protect is enabled at %s Oem.Nvidia.HardwareWriteProtectEnable=true; switch it off on the tray first", e.Hardware)
	}
	return fmt.Sprintf("firmware component write protect is enabled for %d component(s): %s",
		len(e.Components), strings.Join(e.Components, " WriteProtected=true, ")+" WriteProtected=true")
}

// CheckWritable looks whether anything on the tray is write-protected: the
// hardware switch first, then each inventory member. Both are best effort where
// the device does not say; only a collection that cannot be read is an error.
func (c *Client) CheckWritable(ctx context.Context) error {
	const op = "check write protection"
	if path := c.profile.WriteProtectPath; path != "" {
		chassis, err := c.get(ctx, op, path)
		if err != nil && hopeless(ctx, err) {
			return err
		}
		if err != nil {
			c.log.Warn("hardware write protect not readable, going on", slog.String("path", path), slog.String("err", err.Error()))
		} else if on, _ := chassis.at("Oem", "Nvidia").flag("HardwareWriteProtectEnable"); on {
			return &WriteProtectError{Hardware: path}
		}
	}
	list, err := c.inventoryCollection(ctx, op)
	if err != nil {
		return err
	}
	var protected []string
	for _, member := range list.members {
		r, err := c.member(ctx, op, member)
		if err != nil {
			if hopeless(ctx, err) {
				return err
			}
			continue
		}
		if on, _ := r.flag("WriteProtected"); on {
			protected = append(protected, member)
		}
	}
	if len(protected) > 0 {
		return &WriteProtectError{Components: protected}
	}
	return nil
}

// inventoryCollection reads the collection, patiently: an aggregating BMC needs
// a while after a restart.
func (c *Client) inventoryCollection(ctx context.Context, op string) (*collection, error) {
	for attempt := 1; ; attempt++ {
		list, err := c.collection(ctx, op, updatePath+"/FirmwareInventory")
		if err == nil && !list.listed {
			return nil, unreadable(op, "the firmware inventory (it has no Members)", nil)
		}
		if err == nil || hopeless(ctx, err) || attempt >= c.timing.InventoryAttempts {
			return list, err
		}
		if err := sleep(ctx, op, pause(c.timing.InventoryInterval, err)); err != nil {
			return nil, err
		}
	}
}

// ExpectedInventoryError says that a node lacks firmware entries which its
// profile in the configuration expects.
type ExpectedInventoryError struct {
	// Missing are the expected names that are not there, Present those that are,
	// both sorted.
	Missing []string
	Present []string
}

// Error names both.
func (e *ExpectedInventoryError) Error() string {
	return fmt.Sprintf("expected firmware inventory APs were not present: %s. Present APs: %s",
		strings.Join(e.Missing, ", "), clip(strings.Join(e.Present, ", ")))
}

// ExpectedInventory makes sure that the firmware inventory lists every name,
// without regard to case. It reads the collection once and none of its members.
// What is missing fails with CodeFailedPrecondition, wrapping an
// *ExpectedInventoryError.
func (c *Client) ExpectedInventory(ctx context.Context, names []string) error {
	const op = "pre-update expected inventory check"
	list, err := c.collection(ctx, op, updatePath+"/FirmwareInventory")
	if err != nil {
		return err
	}
	e := &ExpectedInventoryError{}
	known := map[string]bool{}
	note := func(name string) {
		if key := strings.ToLower(name); !known[key] {
			known[key] = true
			e.Present = append(e.Present, name)
		}
	}
	for _, member := range list.members {
		note(leaf(member))
	}
	for _, entry := range embeddedEntries(list) {
		note(embeddedName(entry))
	}
	for _, name := range names {
		if name = strings.TrimSpace(name); name != "" && !known[strings.ToLower(name)] {
			e.Missing = append(e.Missing, name)
		}
	}
	if len(e.Missing) == 0 {
		return nil
	}
	slices.Sort(e.Missing)
	slices.Sort(e.Present)
	return &Error{Op: op, Code: CodeFailedPrecondition, cause: e}
}
